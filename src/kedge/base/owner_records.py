# SPDX-License-Identifier: BSD-3-Clause
"""A table of owners as a file: beside an unpacked image, a layer's directory, and what a step of a build has written.

Records end with a NUL byte, for paths may contain any other.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from collections.abc import Iterable

    Record = tuple[bytes, int, int, int | None]

_FIRST_LINE = b"kedge owners 1"
_MAXIMUM_NUMBER = (1 << 32) - 2


def encode_records(records: Iterable[Record]) -> bytes:
    """The file; empty without any record."""
    lines = [
        b"%d %d %s %s" % (uid, gid, b"-" if mode is None else b"%o" % mode, path)
        for path, uid, gid, mode in sorted(records)
    ]
    return b"\0".join([_FIRST_LINE, *lines]) + b"\0" if lines else b""


def decode_records(data: bytes) -> list[Record]:
    """The records in a file; none where it is damaged: then all is root's."""
    first, *lines = data.split(b"\0")
    if first != _FIRST_LINE or not lines or lines.pop():
        return []
    try:
        return [_decode(line) for line in lines]
    except ValueError:
        return []


def _decode(line: bytes) -> Record:
    uid, gid, mode, path = line.split(b" ", 3)
    record = path, int(uid), int(gid), None if mode == b"-" else int(mode, 8)
    if not all(0 <= number <= _MAXIMUM_NUMBER for number in record[1:3]) or not 0 <= (record[3] or 0) <= 0o7777:
        raise ValueError("no owner, group or mode")
    return record


# The extended attributes in which a step of a build notes to whom its program gave a file, where nobody else exists,
# which device an empty file stands for, where only real root can make one, and which mode a file of the image has that
# is without its setuid bits on this host.
#
# A container writes them (`container/processes/noted_files.py`); a layer has the numbers instead
# (`image/layers/owners.py`).

OWNER_ATTRIBUTE = "user.kedge.owner"
DEVICE_ATTRIBUTE = "user.kedge.device"
MODE_ATTRIBUTE = "user.kedge.mode"
# Of a directory, with a name in it: for links and pipes, which have no attributes; without, of a root that has such.
NAME_ATTRIBUTE = "user.kedge.owner."
_KINDS = {0o020000: b"c", 0o060000: b"b"}  # S_IFCHR, S_IFBLK
_LARGEST = (1 << 32) - 2


def encode_owner(uid: int, gid: int) -> bytes:
    """The attribute's value."""
    return b"%d:%d" % (uid, gid)


def decode_owner(value: bytes) -> tuple[int, int] | None:
    """User and group; None for what is no such value, as a program may have written anything there."""
    uid, _, gid = value.partition(b":")
    if not (uid.isdigit() and gid.isdigit()) or len(value) > 21 or max(int(uid), int(gid)) > _LARGEST:
        return None
    return int(uid), int(gid)


def encode_device(mode: int, number: int) -> bytes:
    """The attribute's value, from the arguments of mknod(2)."""
    return b"%s %d:%d" % (_KINDS[mode & 0o170000], os.major(number), os.minor(number))


def decode_device(value: bytes) -> tuple[int, int] | None:
    """The kind of file, as a mode has it, and the number of the device; None for what is no such value."""
    kind, _, numbers = value.partition(b" ")
    major, _, minor = numbers.partition(b":")
    known = next((bits for bits, letter in _KINDS.items() if letter == kind), None)
    if known is None or not (major.isdigit() and minor.isdigit()) or len(value) > 20:
        return None
    if int(major) >= 1 << 12 or int(minor) >= 1 << 20:
        return None
    return known, os.makedev(int(major), int(minor))


def encode_mode(mode: int, shown: int) -> bytes:
    """The attribute's value: the mode in the image, and the one that the file has on the disk meanwhile."""
    return b"%o %o" % (mode, shown)


def decode_mode(value: bytes, shown: int) -> int | None:
    """The mode in the image; None where a program has changed the file's since, and for what is no such value."""
    mode, _, meant = value.partition(b" ")
    if len(value) > 9 or not all(number and not number.strip(b"01234567") for number in (mode, meant)):
        return None
    return int(mode, 8) if int(meant, 8) == shown else None
