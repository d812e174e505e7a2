# SPDX-License-Identifier: BSD-3-Clause
"""Reads runs of plain files out of a tar: most members of most layers, at a sixth of what the general reader costs.

Plain is a regular file whose content lies whole in the piece in hand, in a directory and with an owner that the general
reader (`tar_reader`) has read, checked and remembered. Whatever is new, odd or wrong ends the run and is left to the
general reader, which knows all dialects and all refusals. So there is no rule here that is not there too, and a header
that is taken here means the same there.

What neighbours have in common is compared with the one before and not parsed again: the directory, the owner, the time,
and all from the type on. A run is kept as columns, so that what follows can be done for all its files at once.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from kedge.image.formats.compression.blocks import adler32
from kedge.image.layers.tar_layout import (
    BLOCK,
    POSIX_MAGIC,
    REMEMBERED,
    KnownNumbers,
    KnownSums,
    cut_string,
    parse_number,
    sum_bytes,
)

Identity = tuple[int, int, int]  # mode, user, group

_NAME = 100
_TYPE = 156  # where the part begins that seldom changes
_TYPE_FILE = ord("0")
_MAGIC, _PREFIX = 257 - _TYPE, 345 - _TYPE  # places in what begins with the type
_SLASH = ord("/")
_ODD_BEGINNINGS = frozenset(b"\0./")  # of no name, of "." and "..", of whiteouts, and of "//"
_FIRST_USUAL = b"0"  # odd beginnings come before it; few names do


class PlainRun:
    """Plain files that follow each other in one directory, by columns; empty where the next member is none."""

    __slots__ = ("end", "identities", "latest", "names", "parent", "sizes", "starts", "times")

    def __init__(self, position: int) -> None:
        self.parent = b""  # cleaned, as the general reader's members have it
        self.names: list[bytes] = []
        self.identities: list[Identity] = []
        self.times: list[int] = []
        self.sizes: list[int] = []
        self.starts: list[int] = []  # where contents begin in the piece
        self.latest = b""  # the last one's name as it stands in the tar
        self.end = position  # where the header behind them stands


@lru_cache(_NAME)
def _split_header(length: int) -> struct.Struct:
    """A header, for a directory of `length` bytes: directory, name, identity, size, mtime, checksum, all the rest."""
    return struct.Struct(f"{length}s{_NAME - length}s24s12s12s8s{BLOCK - _TYPE}s")


class _Lengths(dict[bytes, tuple[int, int, int]]):
    """By the field of a size: the size, what header and content take up, and the sum of the field's bytes.

    Raises ValueError where that is no number of a file's bytes.
    """

    def __missing__(self, field: bytes) -> tuple[int, int, int]:
        size = parse_number(field)
        if size < 0:
            raise ValueError("a negative size")
        found = size, BLOCK + (size + BLOCK - 1 & -BLOCK), sum(field)
        if len(self) < REMEMBERED:
            self[field] = found
        return found


class PlainFiles:
    """Finds plain files in a tar; `identities` and `parents` are the general reader's, by the texts of their fields."""

    def __init__(self, identities: dict[bytes, Identity], parents: dict[bytes, bytes]) -> None:
        self._identities = identities
        self._parents = parents
        self.numbers = KnownNumbers()
        self.sums = KnownSums()
        self._claims = KnownNumbers()  # checksums, apart: there may be more times than are remembered
        self._lengths = _Lengths()
        self._rest = b""  # of the header before, from the type on
        self._rest_sum = 0  # of its bytes
        self._prefix = b""  # the part of names that stands in there

    def read(self, piece: bytes, position: int) -> PlainRun:
        """The files of one directory from `position` on, where the next header stands."""
        run = PlainRun(position)
        rest = piece[position + _TYPE : position + BLOCK]
        if rest != self._rest and not self._is_file(rest):
            return run
        text = cut_string(piece[position : position + _NAME])
        directory = text[: text.rfind(b"/") + 1]
        head = (self._prefix + directory)[:-1]
        if len(directory) < _NAME and head in self._parents:
            run.parent = self._parents[head]
            self._fill(run, piece, directory)
            run.latest = self._prefix + directory + run.names[-1] if run.names else b""
        return run

    def _fill(self, run: PlainRun, piece: bytes, directory: bytes) -> None:
        lengths, claims, rest = self._lengths, self._claims, self._rest
        unpack, end, position = _split_header(len(directory)).unpack_from, len(piece), run.end
        last = end - BLOCK
        names, sizes, starts = run.names, run.sizes, run.starts
        identities, times = run.identities, run.times  # completed when their text changes
        owner_text = time_text = b""
        identity, mtime, owner_sum, base = (0, 0, 0), 0, 0, 0
        # What adds up to the checksum, which counts its own field as spaces. `adler32` gives one too many each time, as
        # in `sum_bytes`; 100 bytes are few
        common = self._rest_sum + sum(directory) + 8 * 0x20 - 3
        while position <= last:
            head, tail, owner, length, time, checksum, following = unpack(piece, position)
            if head != directory or following != rest:
                break
            try:
                if owner != owner_text:
                    identities += [identity] * (len(names) - len(identities))
                    identity, owner_text = self._identities[owner], owner
                    base -= owner_sum
                    owner_sum = adler32(owner) & 0xFFFF
                    base += owner_sum
                if time != time_text:
                    times += [mtime] * (len(names) - len(times))
                    mtime, time_text = self.numbers[time], time
                    base = common + owner_sum + (adler32(time) & 0xFFFF)
                size, span, digits = lengths[length]
                is_whole = (adler32(tail) & 0xFFFF) + digits + base == claims[checksum]
            except (KeyError, ValueError):
                break
            name = tail.partition(b"\0")[0]
            if not is_whole or position + span > end or _SLASH in name:
                break
            if tail < _FIRST_USUAL and tail[0] in _ODD_BEGINNINGS:
                break
            names.append(name)
            sizes.append(size)
            starts.append(position + BLOCK)
            position += span
        identities += [identity] * (len(names) - len(identities))
        times += [mtime] * (len(names) - len(times))
        run.end = position

    def _is_file(self, rest: bytes) -> bool:
        """Whether a header with this from its type on is a regular file's."""
        if len(rest) < BLOCK - _TYPE or rest[0] != _TYPE_FILE:
            return False
        has_prefix = rest[_PREFIX] and rest[_MAGIC : _MAGIC + 6] == POSIX_MAGIC
        self._prefix = cut_string(rest[_PREFIX : _PREFIX + 155]) + b"/" if has_prefix else b""
        self._rest, self._rest_sum = rest, sum_bytes(rest)
        return True
