# SPDX-License-Identifier: BSD-3-Clause
"""One blob from its source into the cache: present, waited for, resumed or fetched, and always verified.

The work is a generator of small steps, so that a thread can run it, or, where no thread can be started, the one who
reads the bytes.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol

from kedge.base.frozen import frozen
from kedge.base.manifest import Descriptor
from kedge.base.size import format_size
from kedge.errors import DigestMismatch, KedgeError, NetworkFailed, RegistryProtocolError, StoreBusy
from kedge.image.store.blobs import PIECE, Blobs, Hash, new_hash
from kedge.image.store.lease import Lease, Patience, acquire
from kedge.image.store.use_marks import Use
from kedge.system.files import explained

_SMALL = 64 << 10  # pieces below this are gathered, so that each costs less
_GATHERED = 256 << 10
_PROGRESS = 64 << 10  # bytes that must arrive for a broken connection to count as a new first failure
_LONGEST_PAUSE = 15.0


class _ByteStream(Protocol):
    """An open download: pieces of bytes, and the offset in the blob at which they really begin."""

    @property
    def offset(self) -> int:
        """Where the first byte belongs; 0 when the server ignored the range that was asked for."""

    def __iter__(self) -> Iterator[bytes]: ...


OpenAt = Callable[[int], AbstractContextManager[_ByteStream]]


def _ignore(_: int) -> None:
    pass


@frozen
class IngestOptions:
    """How a blob is fetched."""

    tries: int = 5  # failures in a row without progress
    first_pause: float = 0.5  # seconds before the second try; doubled each time
    keep_partial: bool = True  # after a failure, for the next command to resume
    verify: bool = True  # hash a blob that is present before it is used
    wait: float | None = None  # seconds to wait for another process; None waits as long as it lives
    advance: Callable[[int], None] = _ignore  # told of bytes that are there
    notify: Callable[[str], None] | None = None  # told whom we wait for


class Download:
    """The steps that bring one blob into the cache and, on the way, into a Flow."""

    def __init__(self, blobs: Blobs, descriptor: Descriptor, open_at: OpenAt, options: IngestOptions) -> None:
        self._blobs = blobs
        self._descriptor = descriptor
        self._open_at = open_at
        self._options = options
        self.flow = Flow(descriptor.size, str(descriptor.digest))
        self.cancelled = threading.Event()
        self._lease: Lease | None = None
        self._is_abandoned = False
        self._file = -1  # the partial file; the flow owns and closes it
        self._offset = 0
        self._reported = 0
        self._hash: Hash = new_hash(descriptor.digest.algorithm)

    def steps(self) -> Generator[None, None, None]:
        """Do the work; failures end in the flow, for whoever follows or waits."""
        try:
            yield from self._obtain()
        except Exception as problem:
            self.flow.fail(problem)

    def _obtain(self) -> Iterator[None]:
        layout = self._blobs.layout
        patience = Patience(self._options.wait, self.cancelled, self._options.notify)
        while not self.cancelled.is_set():
            if self._use_present():
                return
            yield
            lease = acquire(
                self._lease_path(), layout.folder("tmp"), lambda: self._blobs.is_present(self._descriptor), patience
            )
            if lease is None:
                continue
            with lease:
                self._lease = lease
                if self._is_abandoned:  # meanwhile: nobody waits for this thread any more
                    continue
                yield from self._fetch(lease)
            return
        raise KedgeError(f"the download of {self._descriptor.digest} was stopped")

    def abandon(self) -> None:
        """Give the lease back while the thread still sits in a read: from now on it writes nothing any more."""
        self._is_abandoned = True  # first: the thread may be about to get a lease
        if self._lease is not None:
            self._lease.is_lost = True
            self._lease.release()

    def _lease_path(self) -> Path:
        self._blobs.layout.folder("leases")
        return self._blobs.layout.lease(self._descriptor.digest.hex)

    def _use_present(self) -> bool:
        """Serve the blob that is in the cache, unless there is none or it is damaged."""
        if self._options.verify:
            if not self._blobs.check(self._descriptor, self.cancelled):
                return False
        elif not self._blobs.is_present(self._descriptor):
            return False
        path = self._blobs.path(self._descriptor.digest)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self.flow.begin(descriptor)
        self.flow.extend(self._descriptor.size)
        self._options.advance(self._descriptor.size)
        self._blobs.touch(self._descriptor.digest)
        self.flow.finish(path)
        return True

    def _fetch(self, lease: Lease) -> Iterator[None]:
        """Fill the partial file and commit it; a resumed one that proves wrong is begun anew, once."""
        self._blobs.layout.sweep()
        self._blobs.layout.folder("partial")
        partial = self._blobs.layout.partial(self._descriptor.digest)
        try:
            is_good = yield from self._fill(partial, lease)
            if not is_good:
                yield from self._fill(partial, lease)
        except KedgeError as problem:
            if isinstance(problem, DigestMismatch) or not self._options.keep_partial or _is_empty(partial):
                _remove(partial)
            raise
        self.flow.verify()
        yield
        self.flow.finish(self._commit(partial))

    def _fill(self, partial: Path, lease: Lease) -> Generator[None, None, bool]:
        """Bring the partial file to its full size; False when what it held before was wrong and is removed now."""
        yield from self._resume(partial)
        resumed = self._offset
        try:
            yield from self._receive(lease)
            if self._hash.hexdigest() == self._descriptor.digest.hex:
                return True
        except RegistryProtocolError:  # such as a range that the server refuses, because the blob is shorter
            if not resumed:
                raise
        if not resumed:
            raise self._mismatch(f"it has the digest {self._descriptor.digest.algorithm}:{self._hash.hexdigest()}")
        _remove(partial)
        return False

    def _commit(self, partial: Path) -> Path:
        with explained(partial), partial.open("rb") as file:
            os.fsync(file.fileno())
        return self._blobs.commit(partial, self._descriptor.digest)

    def _resume(self, partial: Path) -> Iterator[None]:
        """Open the partial file and hash what is there; followers read along."""
        with explained(partial):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW  # in a shared cache others can make links
            descriptor = os.open(partial, flags, self._blobs.layout.file_mode)
            self.flow.begin(descriptor)
            if os.fstat(descriptor).st_size > self._descriptor.size:
                os.ftruncate(descriptor, 0)
        self._file = descriptor
        self._offset = 0
        self._hash = new_hash(self._descriptor.digest.algorithm)
        while True:
            with explained(partial):
                piece = os.pread(descriptor, PIECE, self._offset)
            if not piece:
                return
            self._hash.update(piece)
            self._offset += len(piece)
            self.flow.extend(len(piece))
            self._report()
            yield

    def _receive(self, lease: Lease) -> Iterator[None]:
        """Everything from the offset to the end, over as many connections as it takes."""
        failures = 0
        while self._offset < self._descriptor.size:
            began = self._offset
            try:
                with self._open_at(self._offset) as stream:
                    yield from self._drain(stream, lease)
                if self._offset < self._descriptor.size:
                    raise NetworkFailed(f"the connection ended after {self._offset} of {self._descriptor.size} bytes")
            except (NetworkFailed, OSError) as problem:
                has_advanced = self._offset - began >= _PROGRESS and not getattr(problem, "is_slow", False)
                failures = 1 if has_advanced else failures + 1
                if _is_final(problem):
                    raise
                if failures >= self._options.tries or self.cancelled.is_set():
                    raise self._broken(problem) from problem
                if self._options.notify is not None:
                    self._options.notify(f"{_reason(problem)}, trying again; {self._describe_arrived()}")
                pause = min(_LONGEST_PAUSE, self._options.first_pause * 2 ** (failures - 1))
                if self.cancelled.wait(pause * random.uniform(0.8, 1.2)):
                    raise self._broken(problem) from problem

    def _drain(self, stream: _ByteStream, lease: Lease) -> Iterator[None]:
        """Take what one connection gives; what has arrived is stored even if it breaks."""
        skip = self._offset - stream.offset
        if skip < 0:
            raise RegistryProtocolError(
                f"{self._descriptor.digest}: kedge asked for bytes from {self._offset}, the server sent bytes from "
                f"{stream.offset}"
            )
        gathered: list[bytes] = []
        size = 0
        try:
            for piece in stream:
                if self.cancelled.is_set():
                    raise KedgeError(f"the download of {self._descriptor.digest} was stopped")
                if skip:
                    dropped = min(skip, len(piece))
                    skip -= dropped
                    piece = piece[dropped:]
                if not gathered and len(piece) >= _SMALL:
                    self._store(piece, lease)
                    yield
                    continue
                gathered.append(piece)
                size += len(piece)
                if size >= _GATHERED:
                    whole, gathered, size = b"".join(gathered), [], 0
                    self._store(whole, lease)
                    yield
        finally:
            if gathered:
                self._store(b"".join(gathered), lease)

    def _store(self, piece: bytes, lease: Lease) -> None:
        if self._offset + len(piece) > self._descriptor.size:
            raise self._mismatch("the server sends more than that")
        if not lease.confirm():
            raise StoreBusy(
                f"another process took over the download of {self._descriptor.digest}, because this one was silent",
                hint="run the command again; it waits for the other process",
            )
        self._hash.update(piece)
        with explained(self._blobs.layout.partial(self._descriptor.digest)):
            _write_all(self._file, piece, self._offset)
        self._offset += len(piece)
        self.flow.publish(piece)
        self._report()

    def _report(self) -> None:
        if self._offset > self._reported:  # a download begun anew is not counted twice
            self._options.advance(self._offset - self._reported)
            self._reported = self._offset

    def _mismatch(self, what: str) -> DigestMismatch:
        return DigestMismatch(
            f"a blob is not what the manifest promises, {self._descriptor.size} bytes: {what}",
            context={"digest": str(self._descriptor.digest), "received": str(self._offset)},
            hint="try again; if it fails again, the registry or a proxy damages the content",
        )

    def _broken(self, problem: Exception) -> NetworkFailed:
        context = problem.context if isinstance(problem, KedgeError) else {}
        hint = (problem.hint if isinstance(problem, KedgeError) else None) or "try again later"
        if self._options.keep_partial and self._offset > 0:
            hint = "run the same command again: it resumes this download"
        return NetworkFailed(
            f"the download was given up: {_reason(problem)}; {self._describe_arrived()}",
            context={
                **context,
                "digest": str(self._descriptor.digest),
                "received": f"{self._offset} of {self._descriptor.size} bytes",
            },
            hint=hint,
        )

    def _describe_arrived(self) -> str:
        arrived, size = format_size(self._offset), format_size(self._descriptor.size)
        return f"{arrived} of {size} of {self._descriptor.digest.hex[:12]} have arrived"


def _reason(problem: Exception) -> str:
    return problem.message if isinstance(problem, KedgeError) else str(problem)


def _is_final(problem: Exception) -> bool:
    """Whether whoever raised it says that trying again cannot help (a name that does not exist, say)."""
    return isinstance(problem, NetworkFailed) and problem.is_transient is False


def _write_all(descriptor: int, piece: bytes, offset: int) -> None:
    written = os.pwrite(descriptor, piece, offset)
    while written < len(piece):  # a disk that is nearly full takes a part first
        written += os.pwrite(descriptor, memoryview(piece)[written:], offset + written)


def _is_empty(path: Path) -> bool:
    """Whether nothing has arrived, so that there is nothing to go on from."""
    with contextlib.suppress(OSError):
        return path.stat().st_size == 0
    return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


# The bytes of one blob on their way from the download to those who follow it.
#
# A follower that keeps up takes each piece from memory; one that lags, or comes later, reads the file, which is then in
# the page cache. So a slow follower never holds up the network, and memory stays bounded.

_WINDOW = 4 << 20  # bytes of the newest pieces that are kept in memory
_READ = 1 << 20


@frozen
class _View:
    """What a follower sees at one moment."""

    generation: int
    available: int
    piece: bytes | None


class Flow:
    """One writer, any number of followers; every method may be called from any thread."""

    def __init__(self, size: int, where: str) -> None:
        self._size = size
        self._where = where
        self._changed = threading.Condition()
        self._file = -1
        self._generation = 0
        self._available = 0
        self._recent: dict[int, bytes] = {}
        self._recent_size = 0
        self._error: BaseException | None = None
        self._is_verified = False
        self._result: Path | None = None

    def begin(self, descriptor: int) -> None:
        """The bytes stand in this open file from now on; the flow owns it. Whatever came before does not count."""
        with self._changed:
            if self._file >= 0:
                os.close(self._file)
                self._generation += 1
            self._file = descriptor
            self._available = 0
            self._recent.clear()
            self._recent_size = 0
            self._changed.notify_all()

    def extend(self, count: int) -> None:
        """Let so many more bytes of the file be read."""
        with self._changed:
            self._available += count
            self._changed.notify_all()

    def publish(self, piece: bytes) -> None:
        """Publish a piece that was written at the end of the file."""
        with self._changed:
            self._recent[self._available] = piece
            self._recent_size += len(piece)
            while self._recent_size > _WINDOW and len(self._recent) > 1:
                self._recent_size -= len(self._recent.pop(next(iter(self._recent))))
            self._available += len(piece)
            self._changed.notify_all()

    def verify(self) -> None:
        """Say that all bytes are there and have the right digest: followers may end."""
        with self._changed:
            self._is_verified = True
            self._changed.notify_all()

    def finish(self, result: Path) -> None:
        """The blob is complete in the cache."""
        with self._changed:
            self._is_verified = True
            self._result = result
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End the stream: followers raise this error, or the first where there are several."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def stop(self) -> None:
        """If the blob is not complete, whoever still follows is told that it was stopped."""
        with self._changed:
            if self._result is None and self._error is None:
                self._error = KedgeError(f"the download of {self._where} was stopped")
                self._changed.notify_all()

    def close(self) -> None:
        """Stop, and let go of the file; no further writes."""
        self.stop()
        with self._changed:
            self._recent.clear()
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def wait(self, drive: Callable[[], bool] | None) -> Path:
        """The finished blob; raises what the download raised. `drive`, if given, does a step of the work itself."""
        while True:
            with self._changed:
                while drive is None and self._result is None and self._error is None:
                    self._changed.wait()
                if self._error is not None:
                    raise self._error
                if self._result is not None:
                    return self._result
            if drive is not None:
                drive()

    def follow(self, drive: Callable[[], bool] | None) -> Iterator[bytes]:
        """Every byte from the first, as it arrives; ends only when the digest was found right."""
        position = 0
        generation = -1
        descriptor = -1
        try:
            while (view := self._look(position, generation, drive)) is not None:
                if view.generation != generation:
                    old, descriptor = descriptor, -1
                    descriptor, generation = self._reopen(old)
                    continue
                piece = view.piece
                if piece is None:
                    with explained(self._where):
                        piece = os.pread(descriptor, min(_READ, view.available - position), position)
                    if not piece:
                        raise self._restarted()
                position += len(piece)
                yield piece
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _look(self, position: int, generation: int, drive: Callable[[], bool] | None) -> _View | None:
        """Wait for bytes at `position`; None at the verified end."""
        while True:
            with self._changed:
                while drive is None and not self._has_news(position, generation):
                    self._changed.wait()
                if self._error is not None:
                    raise self._error
                if position and generation != self._generation:
                    raise self._restarted()  # what was given out may be wrong, whatever comes now
                if position < self._available:
                    return _View(self._generation, self._available, self._recent.get(position))
                if self._is_verified:
                    return None
            if drive is not None:
                drive()

    def _has_news(self, position: int, generation: int) -> bool:
        is_restarted = bool(position) and generation != self._generation
        return self._error is not None or position < self._available or self._is_verified or is_restarted

    def _reopen(self, old: int) -> tuple[int, int]:
        with self._changed:
            if old >= 0:
                os.close(old)
            if self._file >= 0:
                return os.dup(self._file), self._generation
            with explained(self._where):
                return os.open(self._result or "", os.O_RDONLY | os.O_CLOEXEC), self._generation

    def _restarted(self) -> DigestMismatch:
        return DigestMismatch(
            f"{self._where}: kedge removed the damaged rest of an interrupted download",
            hint="run the command again to download this blob from the start",
        )


# Ingests: downloads that run on a few threads while their bytes are followed.

JOIN_WAIT = 0.3  # seconds that `close` waits for a thread, which may sit in a read for a minute


class Ingest:
    """A blob that is in the cache or on its way; a context manager that stops what is not needed any more."""

    def __init__(self, descriptor: Descriptor, download: Download, use: Use, on_commit: Callable[[], None]) -> None:
        self.descriptor = descriptor
        self._download = download
        self._use = use
        self._on_commit = on_commit
        self._ended = threading.Event()
        self._is_inline = False
        self._is_closed = False
        self._steps = download.steps()
        self._stepping = threading.Lock()

    def follow(self) -> Iterator[bytes]:
        """The bytes from the first, while they arrive; ends without an error only if size and digest were right.

        May be called again, and by several threads.
        """
        return self._download.flow.follow(self.step if self._is_inline else None)

    def wait(self) -> Path:
        """The blob's path, once it is complete, verified and in its place."""
        return self._download.flow.wait(self.step if self._is_inline else None)

    def run(self) -> None:
        """Do all the work in this thread."""
        while self.step():
            pass

    def run_inline(self) -> None:
        """From now on whoever follows or waits does the work: no thread could be started."""
        self._is_inline = True

    def step(self) -> bool:
        """Do a piece of the work; False when there is none left."""
        with self._stepping:
            if self._ended.is_set():
                return False
            try:
                next(self._steps)
                return True
            except StopIteration:
                self._ended.set()
                if self._is_closed:  # and whoever closed did not wait any longer
                    self._download.flow.close()
        self._on_commit()
        return False

    def cancel(self) -> None:
        """Ask the download to stop at the next piece, without waiting for it."""
        self._download.cancelled.set()

    def close(self, wait: float = JOIN_WAIT) -> None:
        """Stop the download if it still runs, keeping what has arrived; may be called twice."""
        self._is_closed = True
        self.cancel()
        if self._stepping.acquire(timeout=max(wait, 0.0)):
            try:
                self._steps.close()
                self._ended.set()
            finally:
                self._stepping.release()
            self._download.flow.close()
        else:
            # The thread may be about to write: closed now, the file's number might be another file's.
            self._download.abandon()
            self._download.flow.stop()
        self._use.end()

    def __enter__(self) -> Ingest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Workers:
    """A few threads that run ingests in the order they were given; each ends when nothing is left to do."""

    def __init__(self, count: int) -> None:
        self._limit = max(1, count)
        self._waiting: deque[Ingest] = deque()
        self._running = 0
        self._lock = threading.Lock()

    def submit(self, ingest: Ingest) -> None:
        """Run the ingest soon; inline where no thread can be had."""
        with self._lock:
            if self._running < self._limit and self._start_thread():
                self._running += 1
            if self._running == 0:
                ingest.run_inline()
            else:
                self._waiting.append(ingest)

    def _start_thread(self) -> bool:
        thread = threading.Thread(target=self._run, name="kedge-download", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # RLIMIT_NPROC or the pids limit of the cgroup
            return False
        return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                ingest = self._waiting.popleft()
            ingest.run()
