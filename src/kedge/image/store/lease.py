# SPDX-License-Identifier: BSD-3-Clause
"""Leases: one process on all hosts does a piece of work while the others wait for its result.

The holder touches its lease every few seconds. A lease is stale when its holder is dead (same machine) or when the
file has not been touched for a minute (other machines), judged by the file system's clock and by watching, because
the clocks of hosts differ.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from kedge.base.frozen import frozen
from kedge.errors import KedgeError, StoreBusy
from kedge.system.files import explained
from kedge.system.lease_holders import Holder, claim_name
from kedge.system.owned_names import is_running, own_name

BEAT = 5.0  # seconds between touches
STALE_AFTER = 60.0  # seconds without a touch after which another host's lease is given up for dead
SILENT_AFTER = 600.0  # a process that lives here but was stopped (Ctrl-Z) or hangs loses its lease only after this
WATCH_AT_LEAST = 12.0  # even an old-looking lease is watched for two beats: the clocks may differ
_LONGEST_PAUSE = 0.5  # seconds between two looks of a waiter
_GUARD = ".break-"  # in the name of a file that makes one process remove a stale lease
_LEASE_LIMIT = 4096  # bytes; a lease file is a line of JSON


class _Pulse:
    """One thread that touches all files this process must keep alive; it ends when there is none left."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.forget()

    def forget(self) -> None:
        """Begin anew, without a thread: in the child of a fork only the parent's thread goes on beating."""
        self._members: dict[int, tuple[Callable[[], None], float, float]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, beat: Callable[[], None], interval: float) -> int:
        """Call `beat` every `interval` seconds until `remove`; where no thread can be started nothing is called."""
        with self._changed:
            number = next(self._numbers)
            self._members[number] = (beat, interval, time.monotonic() + interval)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kedge-pulse", daemon=True)
                with contextlib.suppress(RuntimeError):  # RLIMIT_NPROC: the holder's own loop beats instead
                    thread.start()
                    self._thread = thread
            self._changed.notify()
            return number

    def remove(self, number: int) -> None:
        """Stop calling."""
        with self._changed:
            self._members.pop(number, None)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._members:
                    self._thread = None
                    return
                soonest = min(due for _, _, due in self._members.values())
                self._changed.wait(max(0.0, soonest - time.monotonic()))
                now = time.monotonic()
                ready = {number: member for number, member in self._members.items() if member[2] <= now}
                for number, (beat, interval, _) in ready.items():
                    self._members[number] = (beat, interval, now + interval)
            for beat, _, _ in ready.values():
                beat()


PULSE = _Pulse()


os.register_at_fork(after_in_child=PULSE.forget)


class Lease:
    """A lease that this process holds; a context manager that lets go at the end."""

    def __init__(self, path: Path, holder: Holder) -> None:
        self.path = path
        self.holder = holder
        self.is_lost = False
        self._confirmed = time.monotonic()
        self._pulse = PULSE.add(self.beat, BEAT)

    def beat(self) -> None:
        """Touch the file, if it is still ours."""
        lease = read_lease(self.path)
        if lease is None or (lease.holder is not None and lease.holder.token != self.holder.token):
            self.is_lost = True
            return
        with contextlib.suppress(OSError):
            os.utime(self.path)
        self._confirmed = time.monotonic()

    def confirm(self) -> bool:
        """Whether the lease is still ours; cheap while the last beat is recent, so each write can ask."""
        if time.monotonic() - self._confirmed > 2 * BEAT:
            self.beat()  # there is no pulse thread, or this process was stopped for a while
        return not self.is_lost

    def release(self) -> None:
        """Let go; a lease somebody else took over is left alone."""
        try:
            PULSE.remove(self._pulse)
            _drop_own(self.path, self.holder)
        except BaseException:  # a signal, which may have come before the file was gone
            _drop_own(self.path, self.holder)
            raise

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@frozen
class _LeaseState:
    """A lease as it was read."""

    holder: Holder | None
    identity: str
    touched: float


def read_lease(path: Path) -> _LeaseState | None:
    """The lease file at `path`; None when there is none. Opening asks an NFS server for the true times."""
    data = b""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_LEASE_LIMIT)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ESTALE):
            return None
        try:
            status = path.stat()  # there, but not for us to read: it counts by its times alone
        except OSError:
            return None
    identity = hashlib.sha256(data + str(status.st_ino).encode()).hexdigest()[:16]
    return _LeaseState(Holder.parse(data), identity, status.st_mtime)


class Watch:
    """Looks at one lease again and again, and says when it is stale."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self._path = path
        self._scratch = scratch
        self._last: _LeaseState | None = None
        self._since = time.monotonic()

    def find_stale(self) -> tuple[_LeaseState | None, bool]:
        """The lease now, and whether its holder is gone."""
        lease = read_lease(self._path)
        if lease is None:
            return None, False
        if lease != self._last:
            self._last, self._since = lease, time.monotonic()
        running = is_running(lease.holder.machine, lease.holder.pid, lease.holder.start) if lease.holder else None
        watched = time.monotonic() - self._since
        if running is not None:
            return lease, not running or watched > SILENT_AFTER
        if watched > STALE_AFTER:
            return lease, True
        return lease, watched > WATCH_AT_LEAST and read_clock(self._scratch) - lease.touched > STALE_AFTER


def read_clock(scratch: Path) -> float:
    """The time now by the clock that stamps files in this directory, which on NFS is the server's."""
    probe = scratch / own_name("clock")
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return 0.0  # nothing looks old then
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def break_lease(path: Path, stale: _LeaseState, scratch: Path) -> None:
    """Take away a stale lease; of many that try at once only one touches it, and never a newer one.

    A guard named after this very lease is claimed first. So somebody slow, who judged the old lease, cannot remove
    the new one: its identity differs, and what was renamed away by mistake is put back.
    """
    guard = path.with_name(f"{path.name}{_GUARD}{stale.identity}")
    if not claim_name(guard, Holder.of_this_process().encode(), scratch):
        _drop_dead_guard(guard, scratch)
        return
    try:
        _take_away(path, stale.identity, scratch)
    finally:
        with contextlib.suppress(OSError):
            guard.unlink()


def _drop_dead_guard(guard: Path, scratch: Path) -> None:
    lease = read_lease(guard)
    if lease is None:
        return
    running = is_running(lease.holder.machine, lease.holder.pid, lease.holder.start) if lease.holder else None
    if running is False or (running is None and read_clock(scratch) - lease.touched > STALE_AFTER):
        _take_away(guard, lease.identity, scratch)


def _take_away(path: Path, identity: str, scratch: Path) -> None:
    now = read_lease(path)
    if now is None or now.identity != identity:
        return
    aside = scratch / own_name("stale")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise StoreBusy(
            f"cannot remove the stale lease {path}: {problem.strerror}",
            context={"holder": str(now.holder or "unknown")},
            hint=f"ask {now.holder.user if now.holder else 'its owner'} to remove this file",
        ) from problem
    taken = read_lease(aside)
    if taken is not None and taken.identity != identity:
        with contextlib.suppress(OSError):
            os.link(aside, path)
    with contextlib.suppress(OSError):
        aside.unlink()


class Patience:
    """How a waiter waits: for how long at most, what ends it early, whom it tells."""

    def __init__(
        self,
        limit: float | None = None,
        cancelled: threading.Event | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.limit, self.cancelled, self.notify = limit, cancelled, notify
        self.has_told = False

    def judge(self, path: Path, lease: _LeaseState, waited: float) -> None:
        """Tell once whom we wait for, and raise StoreBusy when it has been too long."""
        if self.limit is not None and waited > self.limit:
            raise _busy(path, lease, waited)
        if not self.has_told and waited > 1.0 and self.notify is not None:
            self.notify(f"waiting for {lease.holder or 'another process'}, which works on the same item")
            self.has_told = True

    def pause(self, seconds: float) -> bool:
        """Sleep about so long; True when the wait was cancelled."""
        import random  # late: most find nobody to wait for

        seconds *= random.uniform(0.7, 1.3)  # so that many waiters do not look all at once
        if self.cancelled is not None:
            return self.cancelled.wait(seconds)
        time.sleep(seconds)
        return False


def acquire(path: Path, scratch: Path, is_done: Callable[[], bool], patience: Patience) -> Lease | None:
    """Take the lease, waiting for its holder; None when `is_done` came true or the wait was cancelled.

    Raises StoreBusy, naming the holder, when the limit of patience is reached.
    """
    watch = Watch(path, scratch)
    started = time.monotonic()
    pause = 0.01
    while not is_done():
        with explained(path):
            lease = _try_claim(path, scratch)
        if lease is not None:
            return lease if _is_needed(lease, is_done) else None
        present, is_stale = watch.find_stale()
        if present is not None and is_stale:
            with explained(path):
                break_lease(path, present, scratch)
            pause = 0.01
        if present is not None:
            patience.judge(path, present, time.monotonic() - started)
        if patience.pause(pause):
            return None
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return None


def _try_claim(path: Path, scratch: Path) -> Lease | None:
    if os.path.lexists(path):
        return None  # saves the scratch file while somebody works
    holder = Holder.of_this_process()
    try:
        return Lease(path, holder) if claim_name(path, holder.encode(), scratch) else None
    except BaseException:  # a signal between the claim and the value that would let go of it
        _drop_own(path, holder)
        raise


def _is_needed(lease: Lease, is_done: Callable[[], bool]) -> bool:
    """Whether there is still something to do; else, and when a signal ends the look, the lease is let go."""
    is_needed = False
    try:
        is_needed = not is_done()
    finally:
        if not is_needed:  # the work was finished between the two looks
            lease.release()
    return is_needed


def _drop_own(path: Path, holder: Holder) -> None:
    lease = read_lease(path)
    if lease is not None and lease.holder is not None and lease.holder.token == holder.token:
        with contextlib.suppress(OSError):
            path.unlink()


def drop_dead_leases(folder: Path, scratch: Path) -> None:
    """Take away the leases of processes of this host that were killed, whatever they worked on."""
    for entry in os.scandir(folder):
        path = Path(entry.path)
        with contextlib.suppress(KedgeError, OSError):  # another user's, in a shared cache: who needs it says so
            if time.time() - entry.stat(follow_symlinks=False).st_mtime < 2 * BEAT:
                continue  # its holder lives, or died a moment ago: not worth a look into it
            lease = read_lease(path)
            if lease is None or lease.holder is None:
                continue
            if is_running(lease.holder.machine, lease.holder.pid, lease.holder.start) is not False:
                continue
            if _GUARD in entry.name:
                _take_away(path, lease.identity, scratch)
            else:
                break_lease(path, lease, scratch)


def _busy(path: Path, lease: _LeaseState, waited: float) -> StoreBusy:
    holder = lease.holder
    who = str(holder) if holder else "an unknown process"
    context = {"lease": str(path), "waited": f"{waited:.0f} s"}
    if holder is not None:
        context |= {"host": holder.host, "pid": str(holder.pid), "user": holder.user}
    return StoreBusy(
        f"{who} is still working on this after {waited:.0f} s",
        context=context,
        hint="wait, or end that process; kedge takes over the leases of dead processes by itself",
    )
