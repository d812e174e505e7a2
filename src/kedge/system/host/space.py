# SPDX-License-Identifier: BSD-3-Clause
"""Room on disk for an ordinary user: free blocks, and what is left of a quota."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.size import format_size
from kedge.errors import KedgeError, NoSpace
from kedge.system.files import explained
from kedge.system.programs import find_program

_QUOTA_TIMEOUT = 3.0  # seconds; a quota server that is down must not hold up a pull
_SCRATCH_VARIABLES = (
    "SCRATCH",
    "PSCRATCH",
    "WORK",
    "SLURM_TMPDIR",
    "LOCAL_SCRATCH",
    "SCRATCHDIR",
    "TMPDIR",
)
_SCRATCH_FOLDERS = ("/scratch/{user}", "/scratch", "/local/scratch", "/localscratch", "/var/tmp", "/tmp")


@frozen
class Space:
    """What can still be written at a place; `quota_left` is None where no quota is known."""

    path: Path  # the directory that was asked about, or the nearest one that exists
    free: int
    total: int
    quota_left: int | None = None
    quota_limit: int | None = None

    @property
    def usable(self) -> int:
        """The smaller of free space and quota."""
        return self.free if self.quota_left is None else min(self.free, self.quota_left)


@frozen
class Mount:
    """The mounted file system a path is on."""

    kind: str
    source: str
    point: str


def free_space(path: Path) -> Space:
    """Free space for an ordinary user, and the quota, at a path that need not exist yet."""
    folder = _find_existing(path)
    with explained(folder):
        status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    total = status.f_blocks * status.f_frsize
    left, limit = read_quota(folder)
    return Space(folder, free, total, left, limit)


STORE_CHOICE = "KEDGE_CACHEDIR={}/kedge"


def require_space(
    path: Path, needed: int, what: str, environ: Mapping[str, str] | None = None, *, choice: str = STORE_CHOICE
) -> Space:
    """Raise NoSpace, naming a better place if there is one, unless `needed` bytes fit at `path`.

    `choice` is how the user chooses another place, with `{}` where its name goes.
    """
    space = free_space(path)
    if space.usable >= needed or (not space.total and space.quota_left is None):  # some say nothing of their size
        return space
    is_quota = space.quota_left is not None and space.quota_left < space.free
    room = f"{format_size(space.usable)} {'left of your quota' if is_quota else 'free'}"
    better = find_better_place(needed, avoid=space.path, environ=os.environ if environ is None else environ)
    remedy = "free some space (kedge cache clean)"
    if better is not None:
        remedy += f", or use {better.path}, which has {format_size(better.usable)}: {choice.format(better.path)}"
    else:
        remedy += f", or choose another directory: {choice.format('DIRECTORY')}"
    raise NoSpace(
        f"{what} needs about {format_size(needed)} in {path}, which has only {room}",
        context={"path": str(path), "needed": str(needed), "usable": str(space.usable)},
        hint=remedy,
    )


def find_better_place(needed: int, avoid: Path, environ: Mapping[str, str]) -> Space | None:
    """The first scratch directory of this user or site that is writable and has the room."""
    avoided = _device(avoid)
    for candidate in _list_candidates(environ):
        with contextlib.suppress(KedgeError, OSError):
            if not candidate.is_dir() or not os.access(candidate, os.W_OK | os.X_OK) or _device(candidate) == avoided:
                continue
            space = free_space(candidate)
            if space.usable >= needed:
                return space
    return None


def _list_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    for name in _SCRATCH_VARIABLES:
        if environ.get(name, "").startswith("/"):
            yield Path(environ[name])
    user = environ.get("USER") or environ.get("LOGNAME") or str(os.getuid())
    for folder in _SCRATCH_FOLDERS:
        yield Path(folder.format(user=user))


def _device(path: Path) -> int:
    return path.stat().st_dev


def _find_existing(path: Path) -> Path:
    path = path.absolute()
    for candidate in (path, *path.parents):
        if candidate.is_dir():
            return candidate
    return Path("/")


def read_quota(folder: Path) -> tuple[int | None, int | None]:
    """Bytes left and allowed by the tightest quota of this user at a directory; (None, None) where none is known."""
    mount = find_mount(folder)
    quotas = list(_ask_kernel(folder, mount))
    if not quotas and mount is not None:
        quotas = list(_ask_program(mount))
    limited = [(limit - used, limit) for used, limit in quotas if limit > 0]
    if not limited:
        return None, None
    left, limit = min(limited)
    return max(0, left), limit


def _ask_kernel(folder: Path, mount: Mount | None) -> Iterator[tuple[int, int]]:
    from kedge.system.libc import GRPQUOTA, USRQUOTA, get_quota  # late: who writes little asks for no room

    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for kind, identity in ((USRQUOTA, os.getuid()), (GRPQUOTA, os.getgid())):
                with contextlib.suppress(OSError):  # no quota there, none of that kind, or not for us to ask
                    quota = get_quota(descriptor, mount.source if mount else "", kind, identity)
                    if quota is not None:
                        yield quota.used, quota.limit
        finally:
            os.close(descriptor)


def _ask_program(mount: Mount) -> Iterator[tuple[int, int]]:
    """Network file systems keep quotas on the server, and their own programs ask it; answers name the place asked."""
    if mount.kind == "lustre" and find_program("lfs"):
        argv = ["lfs", "quota", "-q", "-u", str(os.getuid()), mount.point]
    elif mount.kind in ("nfs", "nfs4") and find_program("quota"):
        argv = ["quota", "-w", "-p"]
    else:
        return
    from kedge.system.process import run_program  # late, as above

    with contextlib.suppress(KedgeError):
        answer = run_program(argv, timeout=_QUOTA_TIMEOUT, check=False)  # `quota` exits with 1 above the limit
        yield from parse_quota(answer.output.decode(errors="replace"), mount)


def parse_quota(text: str, mount: Mount) -> Iterator[tuple[int, int]]:
    """Bytes used and allowed, from lines `FILESYSTEM used soft hard …` in KiB; a long name has its own line.

    Both `lfs quota` and `quota` write so; a star marks a value above the limit.
    """
    words = text.split()
    for position, word in enumerate(words):
        if word not in (mount.source, mount.point):
            continue
        numbers = [re.sub(r"[*\[\]]", "", word) for word in words[position + 1 : position + 4]]
        if len(numbers) == 3 and all(number.isdecimal() for number in numbers):
            used, soft, hard = (int(number) << 10 for number in numbers)
            yield used, hard or soft


def find_mount(folder: Path, table: Path = Path("/proc/self/mountinfo")) -> Mount | None:
    """The mount a directory is on: the longest mount point that contains it, the last one made if there are several."""
    with contextlib.suppress(OSError):
        real = os.path.realpath(folder)
        best: Mount | None = None
        for line in table.read_text(errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            left, right = before.split(), after.split()
            if len(left) < 5 or len(right) < 2:
                continue
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), left[4])
            contains = real == point or real.startswith(point.rstrip("/") + "/")
            if contains and (best is None or len(point) >= len(best.point)):
                best = Mount(right[0], right[1], point)
        return best
    return None
