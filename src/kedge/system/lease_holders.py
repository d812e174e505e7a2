# SPDX-License-Identifier: BSD-3-Clause
"""Which process holds a lease, and whether it still lives.

flock is not relied on: Lustre, NFS and GPFS mounts often lack it or keep it local to one node. A name made by link()
is exclusive on all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from kedge.base.frozen import frozen, list_names
from kedge.system.owned_names import find_user_name, machine_name, own_name
from kedge.system.spawn import start_of


@frozen
class Holder:
    """A process, named so that any host can tell it from others and its own host can say whether it lives."""

    machine: str  # boot id and process-id namespace: a pid means something only there
    pid: int
    start: int  # clock ticks after boot; tells a reused pid apart
    host: str
    user: str
    token: str  # one per lease

    @classmethod
    def of_this_process(cls) -> Holder:
        """Return this process as a holder, with a fresh token."""
        pid = os.getpid()
        return cls(machine_name(), pid, start_of(pid), os.uname().nodename, find_user_name(), os.urandom(8).hex())

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
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def encode(self) -> bytes:
        """Return one line of JSON, readable by a person who looks into the directory."""
        return json.dumps({name: getattr(self, name) for name in list_names(Holder)}).encode() + b"\n"

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}"


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
    """Claim a path on file systems without hard links; a reader may see the file empty for a moment."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except BaseException:  # a full disk, or a signal: an empty claim would be nobody's, for a minute
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return True
