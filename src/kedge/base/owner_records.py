# SPDX-License-Identifier: BSD-3-Clause
"""A table of owners as a file: beside an unpacked image, a layer's directory, and what a step of a build has written.

Records end with a NUL byte, for paths may contain any other.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from collections.abc import Iterable

    Record = tuple[bytes, int, int, int | None]  # path without leading slash, user, group, mode if the file has another

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
