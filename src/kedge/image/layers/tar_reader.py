# SPDX-License-Identifier: BSD-3-Clause
"""Reads a tar of any common dialect (v7, ustar, PAX, GNU) from a stream of byte pieces, trusting nothing in it.

Content is never copied or joined unless a small file straddles two pieces: sinks get slices of the pieces. Everything
wrong is a CorruptImage, HostileImage or UnsupportedFormat that names layer, member and offset. As in other readers the
end-of-archive blocks may be missing if the stream ends at a block boundary, and what follows them is not looked at.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, cast

from kedge.base.packed_blocks import PackedBlocks, PackedSink
from kedge.base.tree import Buffer, ContentSink, NodeKind, Xattrs
from kedge.errors import CorruptImage, HostileImage, UnsupportedFormat
from kedge.image.layers.limits import Ledger
from kedge.image.layers.member_names import MAXIMUM_COMPONENT, MAXIMUM_PATH, show_name, split_name
from kedge.image.layers.plain_files import Identity, PlainFiles, PlainRun
from kedge.image.layers.tar_layout import (
    BLOCK,
    EXTENSION_TYPES,
    NODE_TYPES,
    POSIX_MAGIC,
    REFUSED_TYPES,
    TYPE_GNU_LONG_LINK,
    TYPE_GNU_LONG_NAME,
    TYPE_HARD_LINK,
    TYPE_PAX_GLOBAL,
    TYPE_SPARSE,
    ZERO_BLOCK,
    cut_string,
    is_header,
    parse_number,
    sum_bytes,
)

Piece = bytes | PackedBlocks  # the tar as it is, or a part of a large file's content in its place

_JOINED = 1 << 16  # a file up to this size that straddles two pieces is joined, a larger one is streamed
_MAXIMUM_ID = (1 << 32) - 2  # -1 means "leave it" to the kernel
_CACHED = 4096  # distinct (mode, uid, gid) texts remembered
_ODD_NAMES = frozenset((b"", b".", b".."))


class Member:
    """One entry of the archive: a cleaned name in two parts, metadata, and for a hard link the path it links to."""

    __slots__ = (
        *("gid", "kind", "mode", "mtime", "name", "nanoseconds", "parent"),
        *("rdev", "size", "target", "uid", "xattrs"),
    )

    def __init__(self, kind: NodeKind | None, identity: Identity, mtime: int) -> None:
        self.kind = kind  # None: a hard link
        self.mode, self.uid, self.gid = identity
        self.mtime = mtime
        self.nanoseconds = 0
        self.parent = b""  # cleaned: no leading or trailing slash, no "." or ".."
        self.name = b""  # empty, with an empty parent, for the root
        self.size = 0  # of a regular file, holes included
        self.target = b""  # of a symbolic link as it stands there; of a hard link a cleaned path
        self.rdev = 0
        self.xattrs: Xattrs = ()

    @property
    def path(self) -> bytes:
        """The whole name, from the image's root."""
        return self.parent + b"/" + self.name if self.parent else self.name


class _Extensions:
    """What the extended headers before a member said."""

    __slots__ = ("long_link", "long_name", "records")

    def __init__(self) -> None:
        self.long_name: bytes | None = None
        self.long_link: bytes | None = None
        self.records: Records = {}


class TarReader:
    """Iterates over the members; `store` hands the current member's content to a sink, otherwise it is passed over."""

    def __init__(self, pieces: Iterator[Piece], where: str, ledger: Ledger) -> None:
        self._pieces = pieces
        self._where = where
        self._ledger = ledger
        self._piece = b""
        self._view = memoryview(b"")
        self._packed: PackedBlocks | None = None  # what is in hand instead of a piece
        self._position = 0
        self._end = 0
        self._before = 0  # bytes of the stream before the current piece
        self._remaining = 0  # bytes of the current member not read yet
        self._padding = 0
        self._sparse: SparseMap | None = None
        self._globals: Records = {}
        self._identities: dict[bytes, Identity] = {}
        self._parents: dict[bytes, bytes] = {b"": b"", b".": b""}
        self._plain = PlainFiles(self._identities, self._parents)
        self._current = b"the beginning"  # what messages about a broken stream name

    def __iter__(self) -> Iterator[Member]:
        extensions: _Extensions | None = None
        while True:
            self._skip(self._remaining + self._padding)
            self._remaining = self._padding = 0
            header = self._read_header()
            if header is None:
                if extensions is not None:
                    self._fail("the archive ends after an extended header, without the member it describes")
                return
            flag = header[156]
            if flag in EXTENSION_TYPES:
                extensions = self._read_extension(flag, header, extensions)
                continue
            member = self._make_member(header, flag, extensions)
            extensions = None
            yield member

    def store(self, sink: ContentSink) -> object:
        """Give the current member's content to `sink` and return its token; None for an empty file."""
        if self._sparse is not None:
            return sink.add_stream(self._sparse.size, expand(self._sparse, self._read_chunks()))
        size, start = self._remaining, self._position
        if not size:
            return None
        if start == self._end and self._next_piece():
            start = 0
        if self._packed is not None:  # then the sink has asked for it
            return cast(PackedSink, sink).add_packed(size, self._read_packed())
        stop = start + size
        if stop <= self._end:
            self._position = stop
            self._remaining = 0
            return sink.add(self._view[start:stop])
        if size <= _JOINED:
            self._remaining = 0
            return sink.add(self._read_exactly(size))
        return sink.add_stream(size, self._read_chunks())

    def read_plain_files(self) -> PlainRun | None:
        """The plain files that follow the current member, of one directory and all in the piece in hand; often none.

        Iteration goes on behind them. Their contents are in `piece` until then.
        """
        position = self._position + self._remaining + self._padding
        if self._globals or position > self._end:
            return None
        run = self._plain.read(self._piece, position)
        if not run.names:
            return None
        self._position, self._remaining, self._padding, self._sparse = run.end, 0, 0, None
        self._current = run.latest
        self._ledger.charge_member(sum(map(len, run.names)), self._where, len(run.names))
        return run

    @property
    def piece(self) -> memoryview:
        """The piece in hand, for contents of plain files."""
        return self._view

    @property
    def place(self) -> int:
        """Where in the piece in hand the reader stands."""
        return self._position

    @property
    def plain_size(self) -> int:
        """How many bytes of the tar follow that are the current member's content as it is; 0 for a sparse file."""
        return 0 if self._sparse is not None else self._remaining

    # -- bytes -----------------------------------------------------------------------------------------------------

    def _next_piece(self) -> bool:
        for piece in self._pieces:
            if piece:
                self._before += self._end
                self._position, self._end = 0, len(piece)
                if isinstance(piece, bytes):
                    self._piece, self._packed = piece, None
                else:  # nobody reads bytes there: it is the content of one file, taken or passed over as a whole
                    self._piece, self._packed = b"", piece
                self._view = memoryview(self._piece)
                return True
        return False

    def _read_exactly(self, count: int) -> bytes:
        start = self._position
        if start + count <= self._end:
            self._position = start + count
            return self._piece[start : start + count]
        parts = [self._piece[start:]]
        missing = count - len(parts[0])
        while missing:
            if not self._next_piece():
                self._position = self._end
                self._fail(f"the archive ends {missing} bytes too early", truncated=True)
            parts.append(self._piece[:missing])
            self._position = len(parts[-1])
            missing -= self._position
        return b"".join(parts)

    def _read_chunks(self) -> Iterator[Buffer]:
        while self._remaining:
            if self._position == self._end and not self._next_piece():
                self._fail(f"the archive ends {self._remaining} bytes too early", truncated=True)
            start = self._position
            stop = min(self._end, start + self._remaining)
            self._position = stop
            self._remaining -= stop - start
            yield self._view[start:stop]

    def _read_packed(self) -> Iterator[PackedBlocks]:
        while self._remaining and self._packed is not None:
            packed = self._packed
            self._position = self._end
            self._remaining -= len(packed)
            yield packed
            if self._remaining and not self._next_piece():
                break
        if self._remaining:
            self._fail(f"the archive ends {self._remaining} bytes too early", truncated=True)

    def _skip(self, count: int) -> None:
        if self._position + count <= self._end:
            self._position += count
            return
        count -= self._end - self._position
        while count > 0:
            self._position = self._end
            if not self._next_piece():
                self._fail(f"the archive ends {count} bytes too early", truncated=True)
            self._position = min(count, self._end)
            count -= self._position

    # -- headers ---------------------------------------------------------------------------------------------------

    def _read_header(self) -> bytes | None:
        if self._position == self._end and not self._next_piece():
            return None  # no end-of-archive blocks, but whole: tolerated, as docker and GNU tar do
        header = self._read_exactly(BLOCK)
        try:
            if sum_bytes(header) == self._plain.sums[header[148:156]]:
                return header
        except ValueError:
            pass
        return self._judge_header(header)

    def _judge_header(self, header: bytes) -> bytes | None:
        if header == ZERO_BLOCK:
            if self._position == self._end and not self._next_piece():
                return None
            if self._read_exactly(BLOCK) == ZERO_BLOCK:
                return None
            self._fail("a single block of zeros stands between members")
        if not is_header(header):
            self._fail("the checksum of a header does not fit")
        return header

    def _read_extension(self, flag: int, header: bytes, extensions: _Extensions | None) -> _Extensions | None:
        size = self._number(header[124:136], "size")
        if not 0 <= size <= MAXIMUM_EXTENSION:
            raise HostileImage(
                f"{self._where}: an extended header of {size} bytes after '{show_name(self._current)}'; "
                f"more than {MAXIMUM_EXTENSION} are refused",
                context=self._context(),
            )
        self._ledger.charge_member(0, self._where)
        data = self._read_exactly(size)
        self._skip(-size % BLOCK)
        if flag == TYPE_PAX_GLOBAL:
            self._merge_globals(self._parse_records(data))
            return extensions
        extensions = extensions or _Extensions()
        if flag == TYPE_GNU_LONG_NAME:
            extensions.long_name = self._cut_long(data)
        elif flag == TYPE_GNU_LONG_LINK:
            extensions.long_link = self._cut_long(data)
        else:
            extensions.records.update(self._parse_records(data))
        return extensions

    def _parse_records(self, data: bytes) -> Records:
        try:
            return parse_records(data)
        except ValueError as problem:
            self._fail(str(problem))

    def _merge_globals(self, records: Records) -> None:
        self._globals.update(records)
        if sum(map(len, self._globals.values())) + 64 * len(self._globals) > MAXIMUM_EXTENSION:
            self._fail("global PAX headers add up to more than 1 MiB")

    def _cut_long(self, data: bytes) -> bytes:
        name = data.rstrip(b"\0")
        if b"\0" in name:
            self._fail(f"the long name '{show_name(name)}' contains a NUL byte")
        return name

    def _make_member(self, header: bytes, flag: int, extensions: _Extensions | None) -> Member:
        kind = NODE_TYPES.get(flag)
        raw = header[:100].partition(b"\0")[0]
        if header[345] and header[257:263] == POSIX_MAGIC:
            raw = cut_string(header[345:500]) + b"/" + raw
        self._current = raw
        if kind is None and flag != TYPE_HARD_LINK:
            self._refuse_type(flag)
        identity = self._identities.get(header[100:124]) or self._parse_identity(header[100:124])
        member = Member(kind, identity, self._number(header[136:148], "mtime"))
        link = cut_string(header[157:257]) if kind is not NodeKind.FILE else b""
        size = self._number(header[124:136], "size")
        self._sparse = None
        if extensions is not None or self._globals or flag == TYPE_SPARSE:
            raw, link, size = self._extend(member, (raw, link, size), header, extensions or _Extensions())
        if flag == 0 and raw[-1:] == b"/":
            member.kind = kind = NodeKind.DIRECTORY  # v7 had no type for directories
        if kind is NodeKind.FILE:
            self._set_size(member, size)
        elif kind is not NodeKind.DIRECTORY:
            self._set_link_or_device(member, link, header)
        self._set_name(member, raw)
        return member

    def _extend(
        self, member: Member, plain: tuple[bytes, bytes, int], header: bytes, extensions: _Extensions
    ) -> tuple[bytes, bytes, int]:
        raw, link, size = plain
        if extensions.long_name is not None:
            raw = extensions.long_name
        if extensions.long_link is not None:
            link = extensions.long_link
        self._current = raw
        records = {**self._globals, **extensions.records}
        try:
            attributes = read_attributes(records)
            raw = records.get(b"GNU.sparse.name") or attributes.path or raw
            self._current = raw
            size = size if attributes.size is None else attributes.size
            if member.kind is NodeKind.FILE:
                size = self._read_sparse(header, records, size)
        except ValueError as problem:
            self._fail(str(problem))
        member.uid = self._check_id(member.uid if attributes.uid is None else attributes.uid)
        member.gid = self._check_id(member.gid if attributes.gid is None else attributes.gid)
        if attributes.mtime is not None:
            member.mtime, member.nanoseconds = divmod(attributes.mtime, 10**9)
        member.xattrs = attributes.xattrs
        if member.xattrs:
            self._ledger.charge_member(sum(len(k) + len(v) + 64 for k, v in member.xattrs), self._where, 0)
        return raw, attributes.linkpath or link, size

    def _read_sparse(self, header: bytes, records: Records, size: int) -> int:
        """Find the map of a sparse file, if it is one; returns the number of stored data bytes that follow."""
        if is_map_in_data(records):
            parser = MapParser(records)
            while self._sparse is None:
                self._sparse = parser.feed(self._read_exactly(BLOCK))
            size -= parser.consumed
        elif header[156] == TYPE_SPARSE:
            self._sparse = self._read_old_map(header)
        else:
            self._sparse = parse_pax_map(records)
        if self._sparse is not None:
            if self._sparse.stored != size:
                raise ValueError(f"a sparse map of {self._sparse.stored} bytes with {size} bytes of data")
            self._ledger.charge_holes(self._sparse.size - size, f"{self._where}: '{show_name(self._current)}'")
        return size

    def _read_old_map(self, header: bytes) -> SparseMap:
        pairs = parse_header_pairs(header, 386, 4)
        extended = header[482]
        while extended:
            block = self._read_exactly(BLOCK)
            self._ledger.charge_member(0, self._where)  # a block may hold no pair and announce another
            pairs += parse_header_pairs(block, 0, 21)
            extended = block[504]
            if len(pairs) > MAXIMUM_PIECES:
                raise ValueError(f"a sparse map of more than {MAXIMUM_PIECES} pieces")
        return check_map(parse_number(header[483:495]), pairs)

    # -- fields ----------------------------------------------------------------------------------------------------

    def _number(self, field: bytes, what: str) -> int:
        try:
            return self._plain.numbers[field]
        except ValueError as problem:
            self._fail(f"field {what}: {problem}")

    def _parse_identity(self, fields: bytes) -> tuple[int, int, int]:
        mode = self._number(fields[:8], "mode") & 0o7777
        identity = mode, self._number(fields[8:16], "uid"), self._number(fields[16:24], "gid")
        self._check_id(identity[1])
        self._check_id(identity[2])
        if len(self._identities) < _CACHED:
            self._identities[fields] = identity
        return identity

    def _check_id(self, value: int) -> int:
        if not 0 <= value <= _MAXIMUM_ID:
            self._fail(f"{value} is no user or group id")
        return value

    def _set_size(self, member: Member, size: int) -> None:
        if not 0 <= size <= MAXIMUM_SIZE:
            self._fail(f"a file of {size} bytes")
        self._remaining = size
        self._padding = -size % BLOCK
        member.size = size if self._sparse is None else self._sparse.size

    def _set_link_or_device(self, member: Member, link: bytes, header: bytes) -> None:
        if member.kind in (NodeKind.CHARACTER_DEVICE, NodeKind.BLOCK_DEVICE):
            major, minor = self._number(header[329:337], "devmajor"), self._number(header[337:345], "devminor")
            if not (0 <= major < 1 << 12 and 0 <= minor < 1 << 20):
                self._fail(f"no such device: major {major}, minor {minor}")
            member.rdev = os.makedev(major, minor)
            return
        if member.kind is NodeKind.FIFO:
            return
        if not link:
            self._fail("a link without a target")
        if member.kind is None:
            link = b"/".join(split_name(link, self._where))
        elif len(link) >= MAXIMUM_PATH or b"\0" in link:
            raise HostileImage(
                f"{self._where}: '{show_name(self._current)}' is a symbolic link to a name of {len(link)} bytes "
                f"or with a NUL byte in it",
                context=self._context(),
            )
        member.target = link

    def _set_name(self, member: Member, raw: bytes) -> None:
        if raw[-1:] == b"/":
            raw = raw.rstrip(b"/") or b"/"
        head, _, name = raw.rpartition(b"/")
        parent = self._parents.get(head)
        if parent is None or name in _ODD_NAMES or len(name) > MAXIMUM_COMPONENT or len(raw) > MAXIMUM_PATH:
            parent, name = self._clean_name(raw)
        member.parent, member.name = parent, name
        self._ledger.charge_member(len(name) + len(member.target), self._where)

    def _clean_name(self, raw: bytes) -> tuple[bytes, bytes]:
        if not raw:
            self._fail("a member without a name")
        parts = split_name(raw, self._where)
        if not parts:
            return b"", b""
        parent, name = b"/".join(parts[:-1]), parts[-1]
        head = raw.rpartition(b"/")[0]
        if head and raw[-len(name) :] == name:
            self._parents[head] = parent
            # directories that only this name implies cost memory too
            self._ledger.charge_member(len(parent), self._where, len(parts) - 1)
        return parent, name

    # -- problems --------------------------------------------------------------------------------------------------

    def _context(self) -> dict[str, str]:
        return {
            "layer": self._where,
            "path": show_name(self._current),
            "offset": str(self._before + self._position),
        }

    def _fail(self, why: str, *, truncated: bool = False) -> NoReturn:
        place = f"in or after '{show_name(self._current)}', at byte {self._before + self._position} of the tar"
        hint = "the layer was cut short; pull it again" if truncated else "the layer is damaged; pull it again"
        raise CorruptImage(f"{self._where}: {why} ({place})", context=self._context(), hint=hint)

    def _refuse_type(self, flag: int) -> NoReturn:
        letter = chr(flag) if 0x20 < flag < 0x7F else f"\\x{flag:02x}"
        what = REFUSED_TYPES.get(flag, "an unknown type")
        raise UnsupportedFormat(
            f"{self._where}: '{show_name(self._current)}' has tar type '{letter}', {what}",
            context=self._context(),
            hint="images have no such entries: build the layer again with a current tool",
        )


# Sparse files in tar: GNU's old header map and the three PAX forms (0.0, 0.1, 1.0), expanded into data and zeros.
#
# A map is a list of (offset, length) pieces of data; what lies between is zeros. Problems are raised as ValueError.
# Specification: GNU tar manual, "Storing Sparse Files".

MAXIMUM_PIECES = 65536
MAXIMUM_SIZE = 1 << 62
_ZEROS = bytes(1 << 18)


@dataclass(frozen=True, slots=True)
class SparseMap:
    """Where a sparse file's stored data belongs, and how large the file really is."""

    size: int
    pieces: tuple[tuple[int, int], ...]

    @property
    def stored(self) -> int:
        """Bytes of data in the archive."""
        return sum(length for _, length in self.pieces)


def check_map(size: int, pieces: list[tuple[int, int]]) -> SparseMap:
    """A map whose pieces are in order, apart from each other and inside the file."""
    if not 0 <= size <= MAXIMUM_SIZE:
        raise ValueError(f"a sparse file of {size} bytes")
    end = 0
    for offset, length in pieces:
        if offset < end or length < 0 or offset + length > size:
            raise ValueError(f"a sparse piece of {length} bytes at {offset} does not fit into {size} bytes")
        end = offset + length
    return SparseMap(size, tuple(piece for piece in pieces if piece[1]))


def parse_header_pairs(block: bytes, start: int, count: int) -> list[tuple[int, int]]:
    """The pairs of an old GNU header (4 of them) or of an extension block (21); an empty pair ends the list."""
    pairs = []
    for place in range(start, start + 24 * count, 24):
        field = block[place : place + 24]
        if not field.strip(b"\0 "):
            break
        pairs.append((parse_number(field[:12]), parse_number(field[12:])))
    return pairs


def parse_pax_map(records: Records) -> SparseMap | None:
    """The map of PAX forms 0.0 and 0.1, None when the records tell of no such file."""
    text = records.get(b"GNU.sparse.map")
    size = records.get(b"GNU.sparse.size") or records.get(b"GNU.sparse.realsize")
    if size is None or is_map_in_data(records):
        return None
    numbers = [_decimal(field) for field in text.split(b",")] if text else []
    if len(numbers) % 2 or len(numbers) > 2 * MAXIMUM_PIECES:
        raise ValueError(f"a sparse map of {len(numbers)} numbers")
    return check_map(_decimal(size), list(zip(numbers[::2], numbers[1::2], strict=True)))


def is_map_in_data(records: Records) -> bool:
    """Whether the records are PAX form 1.0, whose map stands before the data."""
    return records.get(b"GNU.sparse.major") == b"1"


class MapParser:
    """Reads the map of PAX form 1.0 block by block: decimal numbers, one per line, padded to a whole block."""

    def __init__(self, records: Records) -> None:
        self._size = _decimal(records.get(b"GNU.sparse.realsize", b""))
        self._blocks: list[bytes] = []
        self._lines = 0
        self._count: int | None = None

    @property
    def consumed(self) -> int:
        """Bytes of map taken so far."""
        return sum(map(len, self._blocks))

    def feed(self, block: bytes) -> SparseMap | None:
        """Take one block; gives the map once it is complete."""
        self._blocks.append(block)
        self._lines += block.count(b"\n")
        if len(self._blocks) > MAXIMUM_EXTENSION // len(block):
            raise ValueError("a sparse map of more than 1 MiB")
        if self._count is None:
            self._count = _decimal(block.partition(b"\n")[0])
            if self._count > MAXIMUM_PIECES:
                raise ValueError(f"a sparse map of {self._count} pieces")
        if self._lines <= 2 * self._count:
            return None
        numbers = [_decimal(field) for field in b"".join(self._blocks).split(b"\n")[1 : 2 * self._count + 1]]
        return check_map(self._size, list(zip(numbers[::2], numbers[1::2], strict=True)))


def expand(sparse: SparseMap, data: Iterator[Buffer]) -> Iterator[Buffer]:
    """The file's content: stored pieces in their places, zeros between them; `data` yields the stored bytes."""
    position = 0
    left: Buffer = b""
    for offset, length in sparse.pieces:
        yield from _zeros(offset - position)
        position = offset + length
        while length:
            if not left:
                left = next(data)
            part = left[:length]
            yield part
            length -= len(part)
            left = left[len(part) :]
    yield from _zeros(sparse.size - position)


def _zeros(count: int) -> Iterator[Buffer]:
    while count >= len(_ZEROS):
        yield _ZEROS
        count -= len(_ZEROS)
    if count:
        yield memoryview(_ZEROS)[:count]


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19:
        raise ValueError(f"{text[:40]!r} in a sparse map is not a number")
    return int(text)


# PAX extended header records and what they say about the next member: names, sizes, owners, times, attributes.
#
# Problems are raised as ValueError; the reader adds layer and offset.

MAXIMUM_EXTENSION = 1 << 20  # bytes of one extended header, long name or sparse map
_MAXIMUM_XATTR = 65536  # XATTR_SIZE_MAX
_MAXIMUM_XATTR_NAME = 255
_SCHILY = b"SCHILY.xattr."
_LIBARCHIVE = b"LIBARCHIVE.xattr."
_KEPT_KEYS = frozenset((b"path", b"linkpath", b"size", b"uid", b"gid", b"mtime"))
_KEPT_PREFIXES = (_SCHILY, _LIBARCHIVE, b"GNU.sparse.")
_TIME = re.compile(rb"(-?)([0-9]{1,18})(?:\.([0-9]*))?\Z")

Records = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Attributes:
    """Values that replace the header's; None where there is none."""

    path: bytes | None
    linkpath: bytes | None
    size: int | None
    uid: int | None
    gid: int | None
    mtime: int | None  # nanoseconds
    xattrs: Xattrs


def parse_records(data: bytes) -> Records:
    """Read `LENGTH KEY=VALUE\\n` records; keys without meaning here are dropped, empty values stay (they delete)."""
    records: Records = {}
    position, end = 0, len(data)
    while position < end:
        space = data.find(b" ", position, position + 9)
        digits = data[position:space] if space > 0 else b""
        stop = position + int(digits) if digits.isdigit() else 0
        if stop <= space + 2 or stop > end or data[stop - 1] != 0x0A:
            raise ValueError(f"a PAX record is malformed at byte {position} of {end}")
        key, equals, value = data[space + 1 : stop - 1].partition(b"=")
        if not equals or not key:
            raise ValueError(f"a PAX record without a key or '=' at byte {position}")
        if key in _KEPT_KEYS or key.startswith(_KEPT_PREFIXES):
            _keep_record(records, key, value)
        position = stop
    return records


def _keep_record(records: Records, key: bytes, value: bytes) -> None:
    if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
        # sparse format 0.0 repeats these two keys; together they are what 0.1 writes as one map
        key = b"GNU.sparse.map"
        value = records[key] + b"," + value if key in records else value
    records[key] = value


def read_attributes(records: Records) -> Attributes:
    """What the merged records (global, then local) say about a member."""
    path = records.get(b"path") or None
    linkpath = records.get(b"linkpath") or None
    for name in (path, linkpath):
        if name is not None and b"\0" in name:
            raise ValueError(f"the name {name[:80]!r} contains a NUL byte")
    return Attributes(
        path=path,
        linkpath=linkpath,
        size=_read_integer(records, b"size"),
        uid=_read_integer(records, b"uid"),
        gid=_read_integer(records, b"gid"),
        mtime=_read_time(records.get(b"mtime", b"")),
        xattrs=_read_xattrs(records),
    )


def _read_integer(records: Records, key: bytes) -> int | None:
    text = records.get(key, b"")
    if not text:
        return None
    if not text.isdigit() or len(text) > 19:
        raise ValueError(f"PAX {key.decode()} is {text[:40]!r}, not a number")
    return int(text)


def _read_time(text: bytes) -> int | None:
    """Nanoseconds; what is finer is rounded down, as the kernel does."""
    if not text:
        return None
    match = _TIME.match(text)
    if match is None:
        raise ValueError(f"PAX mtime is {text[:40]!r}, not a time")
    sign, seconds, fraction = match.groups()
    digits = fraction or b""
    time = int(seconds) * 10**9 + int(digits[:9].ljust(9, b"0"))
    return time if not sign else -time - bool(digits[9:].strip(b"0"))


def _read_xattrs(records: Records) -> Xattrs:
    xattrs: dict[bytes, bytes] = {}
    for key, value in records.items():
        if key.startswith(_LIBARCHIVE):
            name = urllib.parse.unquote_to_bytes(key[len(_LIBARCHIVE) :])
            xattrs.setdefault(name, _decode_base64(value))
        elif key.startswith(_SCHILY) and value:
            xattrs[key[len(_SCHILY) :]] = value
    for name, value in xattrs.items():
        if not name or len(name) > _MAXIMUM_XATTR_NAME or b"\0" in name or len(value) > _MAXIMUM_XATTR:
            raise ValueError(f"the extended attribute {name[:80]!r} of {len(value)} bytes is more than Linux allows")
    return tuple(sorted(xattrs.items()))


def _decode_base64(value: bytes) -> bytes:
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)  # libarchive leaves the padding out
    except binascii.Error:
        raise ValueError("a LIBARCHIVE.xattr value is not base64") from None
