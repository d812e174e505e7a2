# SPDX-License-Identifier: BSD-3-Clause
"""Files that appear whole or not at all: temporary name beside the target, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from kedge.errors import CorruptImage, FileProblem, KedgeError, LimitReached, NoSpace, OutputExists
from kedge.system.owned_names import own_name, owner_is_gone

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import BinaryIO

TEMPORARY_PREFIX = ".kedge-tmp-"  # what a killed process leaves behind is found by this
_KEPT_NAME = 32  # characters of the target's name in a temporary one, which may have 255 bytes
_LONGEST_SHOWN = 1024  # characters of a path in a message
_PIECE = 1 << 20
HTML = b"<!doctype html"  # how pages begin, in small letters
_HEAD = 4096  # bytes; no image or program has so many without a zero
_IMAGE_FOLDERS = (".singularity.d", "oci-layout", "ch")  # what the directories of images have, and homes have not


def temporary_beside(target: Path) -> Path:
    """A fresh name in the target's directory, so that the rename never crosses a file system; it says who made it."""
    return target.parent / own_name(_begin_temporary(target))


def remove_abandoned(target: Path) -> list[Path]:
    """Remove what killed processes of this host left beside `target` when they were writing it."""
    removed = []
    with contextlib.suppress(OSError):
        for leftover in target.parent.iterdir():
            if leftover.name.startswith(f"{_begin_temporary(target)}.") and owner_is_gone(leftover.name):
                with contextlib.suppress(OSError):
                    if leftover.lstat().st_uid == os.geteuid():  # in /tmp other users can create such names, too
                        from kedge.system.confined_paths import remove_tree  # late: there hardly ever is one

                        remove_tree(leftover)
                        removed.append(leftover)
    return removed


def _begin_temporary(target: Path) -> str:
    return f"{TEMPORARY_PREFIX}{target.name[:_KEPT_NAME]}"


@contextlib.contextmanager
def atomic_output(target: Path, *, mode: int = 0o644, force: bool = False, exact: bool = False) -> Iterator[BinaryIO]:
    """Open a new file for writing and reading that takes the target's name when the block ends without an error.

    The umask takes away from `mode`, unless it is `exact`: another file's, to be kept.

    Without `force` an existing target is refused before anything is written, and again at the end, so a file made
    meanwhile is not lost. Whatever happens, no temporary file stays behind (except after SIGKILL).
    """
    from kedge.system.undivided import Undivided  # late: starts of containers write no such file

    refuse_existing(target, force=force)
    remove_abandoned(target)
    temporary = temporary_beside(target)
    try:
        with explained(target), open(temporary, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            if exact:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        with Undivided():  # a signal now would meet the removal below
            publish(temporary, target, force=force)
            _remove_quietly(temporary)
    except BaseException:
        _remove_quietly(temporary)
        raise


def _remove_quietly(temporary: Path) -> None:
    with contextlib.suppress(OSError):  # what went wrong before says more than that there is nothing to remove
        temporary.unlink()


def refuse_existing(target: Path, *, force: bool = False) -> None:
    """Raise OutputExists where a target may not be replaced: with `force` only what is no image, without it anything.

    Replacing a directory deletes all that is in it, so only an empty one or one that holds an image is replaced.
    """
    if not os.path.lexists(target):
        return
    if not force:
        raise OutputExists(f"{target} exists already", hint="give --force to replace it, or another name")
    with explained(target):
        kind = stat.S_IFMT(os.lstat(target).st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
            raise OutputExists(f"{target} is a device, pipe or socket, not a file", hint="choose another name")
        names = [path.name for path in target.iterdir()] if kind == stat.S_IFDIR else []
    if names and not any(mark in names for mark in _IMAGE_FOLDERS):
        raise OutputExists(
            f"{target} is a directory, but not an image",
            hint="--force replaces images only: choose another name, or remove the directory",
        )


def refuse_existing_text(target: Path, *, force: bool = False, beginning: bytes = b"") -> None:
    """Refuse to replace a text; with `force` texts with the same `beginning` are replaced, and no image or program."""
    head = _read_head(target) if target.is_file() else b""
    if b"\0" in head:
        raise _refuse_kind(f"{target} is no text, and a text replaces texts only", target)
    if force and head and not head.lower().startswith(beginning):
        raise _refuse_kind(f"{target} does not begin as kedge's files of this kind do", target)
    refuse_existing(target, force=force)


def refuse_others(target: Path, pattern: bytes) -> None:
    """Raise OutputExists where a file stands that kedge did not write: its beginning lacks what all of its kind have.

    For files that every run writes anew, without --force.
    """
    import re  # late: starts of containers write no such file

    if target.is_file() and (head := _read_head(target)) and not re.search(pattern, head):
        raise _refuse_kind(f"{target} exists, and kedge did not write it", target)


def _read_head(path: Path) -> bytes:
    with explained(path), path.open("rb") as file:
        return file.read(_HEAD)


def _refuse_kind(message: str, target: Path) -> OutputExists:
    import shlex  # late: only for this failure

    return OutputExists(message, hint=f"choose another name, or remove it yourself: rm {shlex.quote(str(target))}")


def publish(temporary: Path, target: Path, *, force: bool) -> None:
    """Give a complete file its name; the temporary one may be left, and is the caller's to remove."""
    with explained(target):
        if force:
            temporary.replace(target)
            return
        try:
            os.link(temporary, target)  # fails if the name is taken, which rename would not
        except FileExistsError:
            raise OutputExists(
                f"{target} was created by another process meanwhile", hint="give --force to replace it"
            ) from None
        except OSError:  # no hard links on this file system: rename is the best there is
            temporary.rename(target)


def apply_umask(mode: int) -> int:
    """The permissions that a new file made with `mode` gets; asking os.umask() would change it for other threads."""
    with contextlib.suppress(OSError, ValueError), Path("/proc/self/status").open("rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return mode & ~int(line[6:], 8)
    return mode


def copy_range(source: BinaryIO, target: BinaryIO, offset: int, size: int) -> None:
    """Copy `size` bytes from `offset` of one file to the position of another, inside the kernel where it can."""
    target.flush()
    start, done = target.tell(), 0
    # not on these file systems, or not in this Python: the loop below does the rest, and meets real errors
    with contextlib.suppress(OSError, AttributeError):
        while done < size:
            wanted = min(size - done, 1 << 30)
            count = os.copy_file_range(source.fileno(), target.fileno(), wanted, offset + done, start + done)
            if not count:
                break
            done += count
    source.seek(offset + done)
    target.seek(start + done)
    while done < size:
        piece = source.read(min(size - done, _PIECE))
        if not piece:
            raise CorruptImage(f"{getattr(source, 'name', 'the file')} was truncated while kedge copied it")
        target.write(piece)
        done += len(piece)


def require_writable(folder: Path) -> None:
    """Raise now what making a file in `folder` would raise later: it is missing, a file, or not writable."""
    with explained(folder):
        is_read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            number = errno.EROFS if is_read_only else errno.EACCES
            raise OSError(number, os.strerror(number))


def write_atomically(target: Path, data: bytes, *, mode: int = 0o644, exact: bool = False) -> None:
    """Replace a small file's content in one step."""
    with atomic_output(target, mode=mode, force=True, exact=exact) as file:
        file.write(data)


@contextlib.contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Turn an OSError about `path` into an error that says what it is and what helps."""
    try:
        yield
    except OSError as problem:
        raise explain(problem, path) from problem


def explain(problem: OSError, path: Path | str) -> KedgeError:
    """The error to raise for an OSError on `path`."""
    path = _shorten(str(path))
    context = {"path": path, "errno": errno.errorcode.get(problem.errno or 0, str(problem.errno))}
    reason = problem.strerror or str(problem)
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "your quota is used up" if problem.errno == errno.EDQUOT else "the file system is full"
        hint = "free some space ('kedge cache clean'), or choose another directory with --tmpdir or KEDGE_CACHEDIR"
        return NoSpace(f"cannot write {path}: {what}", context=context, hint=hint)
    if problem.errno in (errno.EMFILE, errno.ENFILE):
        hint = "'ulimit -n' shows the limit; raise it with 'ulimit -n 1024', or run it in a job"
        return LimitReached(f"cannot open {path}: too many open files", context=context, hint=hint)
    hints = {
        errno.EFBIG: "'ulimit -f' shows the largest file size allowed; raise it, or choose another file system",
        errno.ENOENT: "check the spelling; relative names are looked up from the current directory",
        errno.EACCES: "you have no permission: ask its owner, or choose a directory of your own",
        errno.EROFS: "the file system is read-only: choose another directory",
        errno.EISDIR: "name a file, not a directory",
        errno.ENOTDIR: "a part of this path is a file, not a directory",
        errno.ENAMETOOLONG: "choose a shorter name",
    }
    return FileProblem(f"{path}: {reason}", context=context, hint=hints.get(problem.errno or 0))


def _shorten(path: str) -> str:
    """A path that fits on a screen: of one that is too long for the kernel, both ends."""
    return path if len(path) <= _LONGEST_SHOWN else f"{path[:200]}…{path[-60:]} ({len(path)} characters)"
