# SPDX-License-Identifier: BSD-3-Clause
"""Who holds a file, and whether they still live: the ground that leases stand on.

flock is not relied on: Lustre, NFS and GPFS mounts often lack it or keep it local to one node. A name made by link()
is exclusive on all of them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from kedge.posix.files import TEMPORARY_PREFIX

ABANDONED_AFTER = 600.0  # seconds; a temporary file nobody wrote to for so long has no writer on another host


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, named so that any host can tell it from others and its own machine can say whether it lives."""

    machine: str  # boot id and process-id namespace: a pid means something only there
    pid: int
    start: int  # clock ticks after boot; tells a reused pid apart
    host: str
    user: str
    token: str  # one per lease

    @classmethod
    def of_this_process(cls) -> Holder:
        """This process, with a fresh token."""
        pid = os.getpid()
        return cls(machine_name(), pid, _start_of(pid), os.uname().nodename, user_name(), secrets.token_hex(8))

    @classmethod
    def parse(cls, data: bytes) -> Holder | None:
        """Read what `encode` wrote; None for anything else, such as a file that is just being written."""
        try:
            fields = json.loads(data)
            return cls(
                str(fields["machine"]),
                int(fields["pid"]),
                int(fields["start"]),
                str(fields["host"]),
                str(fields["user"]),
                str(fields["token"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def encode(self) -> bytes:
        """One line of JSON, readable by a person who looks into the folder."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode() + b"\n"

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}"


@functools.cache
def machine_name() -> str:
    """A name for this boot of this kernel and this pid namespace; random where /proc does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return secrets.token_hex(6)
    return hashlib.sha256(boot + namespace.encode()).hexdigest()[:12]


@functools.cache
def user_name() -> str:
    """The user's login name, or the number where no database knows it."""
    import pwd  # late: only processes that take leases need it

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def is_running(machine: str, pid: int, start: int) -> bool | None:
    """Whether that process lives; None when it belongs to another machine and cannot be asked about.

    A `start` of 0 fits any process with that pid.
    """
    if machine != machine_name():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass  # it is another user's, whose /proc entry may be hidden too
    found = _start_of(pid)
    return found in (0, start) or (start == 0 and found > 0)


def _start_of(pid: int) -> int:
    """The start time of a process; 0 when unknown, -1 when it is dead but not yet waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0


def claim_name(path: Path, content: bytes, scratch: Path) -> bool:
    """Make `path` with `content` in one step; False when the name is taken. `scratch` is on the same file system."""
    temporary = scratch / own_name("claim")
    try:
        temporary.write_bytes(content)
        try:
            os.link(temporary, path)
            return True
        except FileExistsError:
            # NFS: the server may have made the link and its answer got lost; then the count tells.
            return temporary.stat().st_nlink == 2
        except PermissionError:
            if not os.access(path.parent, os.W_OK):
                raise
            return _claim_exclusively(path, content)
        except OSError:
            return _claim_exclusively(path, content)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _claim_exclusively(path: Path, content: bytes) -> bool:
    """The same on file systems without hard links; a reader may see the file empty for a moment."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return True


def own_name(label: str) -> str:
    """A fresh file name that says which process made it; `owner_is_gone` reads it."""
    pid = os.getpid()
    return f"{label}.{machine_name()}.{pid}.{_start_of(pid)}.{secrets.token_hex(6)}"


def owner_is_gone(name: str) -> bool | None:
    """Whether the maker of a file called by `own_name` has ended; None when it cannot be known from here."""
    parts = name.split(".")
    try:
        machine, pid, start = parts[-4], int(parts[-3]), int(parts[-2])
    except (ValueError, IndexError):
        return None
    running = is_running(machine, pid, start)
    return None if running is None else not running


def remove_abandoned(target: Path) -> list[Path]:
    """Remove temporary files that killed processes left beside `target` when they were writing it."""
    removed = []
    with contextlib.suppress(OSError):
        for found in target.parent.iterdir():
            if not found.name.startswith(TEMPORARY_PREFIX) or not found.name.endswith(f"-{target.name[:64]}"):
                continue
            digits = found.name[len(TEMPORARY_PREFIX) :].split("-")[0]
            with contextlib.suppress(OSError, ValueError):
                lives_here = is_running(machine_name(), int(digits), 0)
                # The name does not tell the host: a file that still grows belongs to somebody elsewhere.
                if not lives_here and time.time() - found.stat().st_mtime > ABANDONED_AFTER:
                    found.unlink()
                    removed.append(found)
    return removed
