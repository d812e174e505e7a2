# SPDX-License-Identifier: BSD-3-Clause
"""Directories and files of the user's own, whose content is believed: scripts in them are run, pickles are read.

The user made them, and nobody else may write to them. The group's bits of a mode also tell of access control lists: the
mask stands there, so a list that lets somebody write shows as a group that may. Lean, for the path of a start.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from kedge.errors import KedgeError

OTHERS_WRITE = 0o022
OTHERS_ENTER = 0o077
_NOBODY = 65534
ANY_MODE = 0  # for what stands in a directory that others cannot enter


def make_private(folder: Path, mode: int = 0o700) -> None:
    """Make a directory, and those above it that are missing, with `mode`; those that exist stay as they are.

    `Path.mkdir(parents=True)` gives the ones above whatever the umask allows: with 002 or 000 others could put a
    directory of theirs in its place. The XDG specification asks for 0700, too.
    """
    missing = [directory for directory in (folder, *folder.parents) if not directory.is_dir()]
    for directory in reversed(missing):
        directory.mkdir(mode=mode, exist_ok=True)


def find_intruder(status: os.stat_result, forbidden: int = OTHERS_WRITE) -> str:
    """Why a directory is not the user's alone, by what os.lstat says of it; empty: it is."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a symlink"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & forbidden:
        what = "write to" if status.st_mode & OTHERS_WRITE else "enter"
        return f"others may {what} it (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def find_risk_above(path: str) -> str:
    """Why anybody could put another directory in the place of this one; empty: only its owner's group and root could.

    Groups may write above: on clusters they share directories. What they put there is theirs, and is refused as such.
    """
    above = os.path.abspath(path)
    while above != "/":
        status = _look_at(above)
        if status is not None and stat.S_ISLNK(status.st_mode) and not _is_trusted(status.st_uid):
            return f"{above} is a symlink of user {status.st_uid}"
        above = os.path.dirname(above)
    above = os.path.dirname(os.path.realpath(path))
    while True:
        status = _look_at(above)
        if status is not None and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"everybody may write to {above}"
        if above == "/":
            return ""
        above = os.path.dirname(above)


def is_out_of_reach(path: str) -> bool:
    """Whether only this user and root could put something else in the place of a path, in which no link is.

    A group with the user's own number is the user's alone, as many systems make one for each.
    """
    place = path
    while place != "/":
        above = os.path.dirname(place)
        inner, outer = _look_at(place), _look_at(above)
        if inner is None or outer is None or not _is_trusted(inner.st_uid) or not _is_trusted(outer.st_uid):
            return False
        by_group = outer.st_mode & stat.S_IWGRP and outer.st_gid != os.geteuid()
        if (by_group or outer.st_mode & stat.S_IWOTH) and not outer.st_mode & stat.S_ISVTX:
            return False
        place = above
    return True


def refuse_intruders(path: Path, variable: str) -> None:
    """Raise where a directory that `variable` chooses is not the user's alone; one that is not there yet may be made.

    A symlink of the user's own counts for what it leads to: homes are small, and people move directories.
    """
    place = os.path.realpath(path)
    reason = find_risk_above(str(path))
    status = _look_at(place)
    if status is not None and not reason:
        reason = find_intruder(status)
    if not reason:
        return
    is_open = status is not None and status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode)
    remedy = f"chmod go-w {place}, or " if is_open and reason.startswith("others") else ""
    raise make_refusal(path, reason, f"{remedy}choose a directory of your own: {variable}=DIRECTORY")


def refuse_changed(path: Path, forbidden: int = OTHERS_ENTER) -> None:
    """Raise where a directory that kedge made is not as kedge made it; one that is not there may be made."""
    status = _look_at(str(path))
    reason = find_intruder(status, forbidden) if status is not None else ""
    if reason:
        raise make_refusal(path, reason, f"check its contents; if all files are yours: chmod 700 {path}")


def make_refusal(path: Path | str, reason: str, hint: str) -> KedgeError:
    """The error for a directory or file that is not the user's alone."""
    from kedge.errors import FileProblem  # late: only for an error

    context = {"path": str(path), "reason": reason}
    return FileProblem(f"kedge does not use {path}: {reason}", context=context, hint=hint)


def find_foreign_hand(status: os.stat_result) -> str:
    """Why a file that people write by hand is not the user's word, nor root's; empty: it is.

    Its group may write: editors leave that to the umask, and many systems give each user a group.
    """
    if not _is_trusted(status.st_uid):
        return f"it belongs to user {status.st_uid}"
    return "everybody may write to it" if status.st_mode & stat.S_IWOTH else ""


def open_own_file(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file of the user's, and no link; the directory keeps others from writing to it."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        return file
    os.close(file)
    reason = "not a regular file" if status.st_uid == os.geteuid() else f"it belongs to user {status.st_uid}"
    raise PermissionError(errno.EPERM, reason, str(path))


def read_own_file(path: Path | str, limit: int) -> bytes:
    """The content of such a file; one that is larger than `limit` is refused."""
    file = open_own_file(path)
    try:
        size = os.fstat(file).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"it has {size} bytes, and at most {limit} are read", str(path))
        with os.fdopen(file, "rb", closefd=False) as stream:
            return stream.read(limit)
    finally:
        os.close(file)


def _is_trusted(uid: int) -> bool:
    """Whether a uid is this user or root; in a container the kernel shows all but its own users as nobody."""
    if uid in (0, os.geteuid()):
        return True
    try:
        with open("/proc/self/uid_map", "rb") as file:
            return uid == _NOBODY and file.read(64).split() != [b"0", b"0", b"4294967295"]
    except OSError:
        return False


def _look_at(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # not there, or not for us to see: making or opening it says so
