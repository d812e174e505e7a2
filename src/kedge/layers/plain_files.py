# SPDX-License-Identifier: BSD-3-Clause
"""Reads runs of plain files out of a tar: most members of most layers, at a quarter of what the general reader costs.

Plain is a regular file whose header is ASCII alone and whose content lies whole in the piece in hand, in a directory
and with an owner that the general reader (`tar_reader`) has read, checked and remembered. Whatever is new, odd or wrong
ends the run and is left to the general reader, which knows all dialects and all refusals. So there is no rule here that
is not there too, and a header that is taken here means the same there.
"""

from __future__ import annotations

import struct

from kedge.formats.compression import adler32
from kedge.layers.tar_layout import BLOCK, POSIX_MAGIC, KnownNumbers, KnownSums, cut_string

Identity = tuple[int, int, int]  # mode, user, group
PlainFile = tuple[Identity, int, int, int]  # identity, mtime, size, where the content begins in the piece

_HEADER = struct.Struct("100s24s12s12s8s356s")  # name, identity, size, mtime, checksum, all from the type on
_TYPE_FILE = ord("0")
_MAGIC, _PREFIX = 257 - 156, 345 - 156  # places in what begins with the type
_ODD_BEGINNINGS = frozenset((b"", b"."))  # of no name, of "." and "..", and of whiteouts


class PlainRun:
    """Plain files that follow each other in one directory; empty where the next member is none."""

    __slots__ = ("end", "files", "latest", "names", "parent")

    def __init__(self, position: int) -> None:
        self.parent = b""  # cleaned, as the general reader's members have it
        self.names: list[bytes] = []
        self.files: list[PlainFile] = []  # one for each name
        self.latest = b""  # the last one's name as it stands in the tar
        self.end = position  # where the header behind them stands


class PlainFiles:
    """Finds plain files in a tar; `identities` and `parents` are the general reader's, by the texts of their fields."""

    def __init__(self, identities: dict[bytes, Identity], parents: dict[bytes, bytes]) -> None:
        self._identities = identities
        self._parents = parents
        self.numbers = KnownNumbers()
        self.sums = KnownSums()
        self._rest = b""  # of the header before, from the type on: it seldom changes
        self._prefix = b""  # the part of names that stands in there

    def read(self, piece: bytes, position: int) -> PlainRun:
        """The files of one directory from `position` on, where the next header stands."""
        identities, numbers, sums = self._identities, self.numbers, self.sums
        unpack, end = _HEADER.unpack, len(piece)
        run = PlainRun(position)
        names, files, directory = run.names, run.files, None
        while position + BLOCK <= end:
            header = piece[position : position + BLOCK]
            text, owner, length, time, checksum, rest = unpack(header)
            if rest != self._rest and not self._is_file(rest):
                break
            path = self._prefix + text.partition(b"\0")[0]
            head, _, name = path.rpartition(b"/")
            try:
                size = numbers[length]
                file = (identities[owner], numbers[time], size, position + BLOCK)
                is_whole = header.isascii() and (adler32(header) & 0xFFFF) - 1 == sums[checksum]  # as in `sum_bytes`
            except (KeyError, ValueError):
                break
            following = position + BLOCK + (size + BLOCK - 1 & -BLOCK)
            if not is_whole or size < 0 or following > end or name[:1] in _ODD_BEGINNINGS:
                break
            if head != directory:
                if names or head not in self._parents:
                    break
                directory, run.parent = head, self._parents[head]
            names.append(name)
            files.append(file)
            run.latest = path
            run.end = position = following
        return run

    def _is_file(self, rest: bytes) -> bool:
        """Whether a header with this from its type on is a regular file's."""
        if rest[0] != _TYPE_FILE:
            return False
        has_prefix = rest[_PREFIX] and rest[_MAGIC : _MAGIC + 6] == POSIX_MAGIC
        self._prefix = cut_string(rest[_PREFIX : _PREFIX + 155]) + b"/" if has_prefix else b""
        self._rest = rest
        return True
