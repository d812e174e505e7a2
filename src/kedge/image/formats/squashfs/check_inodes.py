# SPDX-License-Identifier: BSD-3-Clause
"""Every inode of an image, in the order of the table: what it says of its blocks, its fragment, owners and attributes.

There may be millions, and nearly all are files without blocks of their own: those are looked at by columns. Whatever
columns do not find in order is read again one by one, which finds out what is wrong, if anything is.
"""

from __future__ import annotations

import operator
import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.check_tables import TableStream, read_words
from kedge.image.formats.squashfs.layout import (
    BLOCK_SIZE_MASK,
    BLOCK_STORED,
    INVALID_FRAGMENT,
    INVALID_XATTR,
    METADATA_SIZE,
)

_FILE = layout.BASIC_FILE.size
_LONGEST = layout.EXTENDED_DIRECTORY.size + layout.EXTENDED_FILE.size  # more than any inode has before its lists
_BASIC_FILE = 2
_FEW, _MANY = 16, 8192  # files that are looked at together


@dataclass(frozen=True, slots=True)
class Bounds:
    """What inodes may refer to."""

    block_size: int
    data_start: int  # of blocks and fragments
    data_end: int
    inodes: int
    ids: int
    xattrs: int
    fragments: list[int]  # how many bytes each gives
    is_own: bool = False  # kedge stores what its codec does not make smaller
    packs: bool = True  # a codec of kedge's own image makes blocks smaller

    def largest_packed(self, length: int) -> int:
        """How many bytes a compressed block may have that gives `length`."""
        if not self.is_own:
            return self.block_size
        return length - 1 if self.packs else 0


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory, as its inode describes it."""

    listing: int  # address
    size: int
    number: int
    links: int
    parent: int
    address: int
    index: list[tuple[int, int, bytes]]  # offset in the listing, metadata block, name


@dataclass(slots=True)
class Inodes:
    """What was found, by inode number; 0 is no number."""

    addresses: array[int]
    kinds: bytearray  # basic types
    folders: list[Folder] = field(default_factory=list)
    links: dict[int, int] = field(default_factory=dict)  # of those with more names than one
    stretches: set[tuple[int, int]] = field(default_factory=set)  # of the data area, start and end, of files' blocks
    files: int = 0


OnBlocks = Callable[[int, "array[int]", int], None]  # start, size words, file size


class InodeCheck:
    """Goes through the table once; `on_blocks` is told of each file with blocks."""

    def __init__(self, stream: TableStream, bounds: Bounds, on_blocks: OnBlocks) -> None:
        self.place = 0  # of the inode in hand
        self._stream = stream
        self._bounds = bounds
        self._on_blocks = on_blocks
        count = bounds.inodes + 1
        self.found = Inodes(array("Q", bytes(8 * count)), bytearray(count))
        self.found.kinds[0] = 255  # taken
        self._room = dict(enumerate(bounds.fragments))
        self._room[INVALID_FRAGMENT] = 0
        self._together = _FEW
        self._takers: dict[int, Callable[[int], int]] = {
            1: self._take_folder,
            2: self._take_file,
            8: self._take_extended_folder,
            9: self._take_extended_file,
        }

    @property
    def address(self) -> int | None:
        """Return the address of the inode in hand, if the table got that far."""
        return self._stream.find_address(self.place) if self.place < len(self._stream.data) else None

    def run(self) -> Inodes:
        """Look at all; raises `CorruptImage`, and `address` is then that of the inode in hand."""
        stream = self._stream
        while True:
            if len(stream.data) - self.place < _LONGEST:
                stream.drop(self.place)
                self.place = 0
                while len(stream.data) < _LONGEST and stream.grow():
                    pass
                if not stream.data:
                    break
            self.place += self._take_plain(self.place) or self._take_one(self.place)
        if 0 in self.found.kinds:
            missing = self.found.kinds.index(0)
            raise stream.fault(0, f"there is no inode {missing}, and the superblock announces {self._bounds.inodes}")
        return self.found

    # -- many at once

    def _take_plain(self, place: int) -> int:
        """Files in fragments, and empty ones, from `place` on: their bytes; 0 where there is none, or one is odd."""
        data = self._stream.data
        if data[place] != _BASIC_FILE:
            return 0
        count = min((len(data) - place) // _FILE, self._together)
        types = data[place : place + count * _FILE : _FILE]
        count -= len(types.lstrip(b"\2"))
        piece = data[place : place + count * _FILE]
        while count and not self._are_plain(piece):
            count //= 4
            piece = piece[: count * _FILE]
        if not count:
            return 0
        self._together = min(max(2 * count, _FEW), _MANY)  # runs are about as long as the one before
        numbers = read_words(piece, "I")[3::8]
        addresses = self._find_addresses(place, len(piece))
        breaks = [index for index, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1]
        for start, end in pairwise((0, *breaks, count)):
            first, last = numbers[start], numbers[end - 1]
            if not 0 < first <= last <= self._bounds.inodes or any(self.found.kinds[first : last + 1]):
                return start * _FILE  # the next one is taken alone, and refused
            self.found.addresses[first : last + 1] = addresses[start:end]
            self.found.kinds[first : last + 1] = b"\2" * (end - start)
            self.found.files += end - start
        return len(piece)

    def _find_addresses(self, place: int, size: int) -> array[int]:
        """Return the addresses of inodes of plain files that stand one after the other."""
        addresses: list[int] = []
        while len(addresses) * _FILE < size:
            begin = len(addresses) * _FILE
            first = self._stream.find_address(place + begin)
            room = min(METADATA_SIZE - first % METADATA_SIZE, size - begin)
            addresses += range(first, first + room, _FILE)  # the last may end in the next block
        return array("Q", addresses)

    def _are_plain(self, piece: bytes) -> bool:
        if any(piece[1::_FILE]):
            return False
        words = read_words(piece, "I")
        fragments, sizes = words[5::8], words[7::8]
        if max(sizes) >= self._bounds.block_size or sizes.count(0) != fragments.count(INVALID_FRAGMENT):
            return False
        if any(max(pair & 0xFFFF, pair >> 16) >= self._bounds.ids for pair in set(words[1::8])):
            return False
        try:
            room = map(self._room.__getitem__, fragments)
            return not any(map(operator.gt, map(operator.add, words[6::8], sizes), room))
        except KeyError:
            return False

    # -- one by one

    def _take_one(self, place: int) -> int:
        stream, bounds, found = self._stream, self._bounds, self.found
        stream.require(place, layout.INODE_HEADER.size)
        kind, _, uid, gid, _, number = layout.INODE_HEADER.unpack_from(stream.data, place)
        if not 1 <= kind <= 2 * layout.EXTENDED:
            raise stream.fault(place, f"inode type {kind} is unknown")
        if max(uid, gid) >= bounds.ids:
            raise stream.fault(place, f"inode {number} has owner {max(uid, gid)} of {bounds.ids}")
        if number > bounds.inodes or found.kinds[number]:
            raise stream.fault(place, f"inode number {number} is taken, or above the {bounds.inodes} there are")
        found.kinds[number] = kind - layout.EXTENDED if kind > layout.EXTENDED else kind
        found.addresses[number] = stream.find_address(place)
        return self._takers.get(kind, self._take_special)(place)

    def _unpack(self, record: struct.Struct, place: int) -> tuple[int, ...]:
        self._stream.require(place, record.size)
        return record.unpack_from(self._stream.data, place)

    def _take_file(self, place: int) -> int:
        fields = self._unpack(layout.BASIC_FILE, place)
        number, start, fragment, offset, size = fields[5:]
        lists = self._check_file(place, layout.BASIC_FILE.size, (number, start, size, fragment, offset))
        return layout.BASIC_FILE.size + lists

    def _take_extended_file(self, place: int) -> int:
        fields = self._unpack(layout.EXTENDED_FILE, place)
        number, start, size, sparse, links, fragment, offset, xattr = fields[5:]
        if sparse and sparse >= size:
            raise self._stream.fault(place, f"file inode {number} of {size} bytes has {sparse} bytes in holes")
        self._note(place, number, links, xattr)
        lists = self._check_file(place, layout.EXTENDED_FILE.size, (number, start, size, fragment, offset))
        return layout.EXTENDED_FILE.size + lists

    def _check_file(self, place: int, head: int, fields: tuple[int, int, int, int, int]) -> int:
        """The bytes of the block list."""
        number, start, size, fragment, offset = fields
        stream, block_size = self._stream, self._bounds.block_size
        self.found.files += 1
        count, tail = divmod(size, block_size)
        if fragment == INVALID_FRAGMENT:
            count += bool(tail)
        elif not tail:
            raise stream.fault(
                place, f"file inode {number} of {size} bytes, whole blocks of {block_size}, lies in fragment {fragment}"
            )
        elif offset + tail > self._room.get(fragment, -1):
            room = self._room.get(fragment)
            what = f"which gives {room} bytes" if room is not None else f"of {len(self._bounds.fragments)}"
            raise stream.fault(
                place, f"file inode {number} ends at byte {offset + tail} of fragment {fragment}, {what}"
            )
        if count:
            stream.require(place + head, 4 * count)
            words = read_words(stream.data[place + head : place + head + 4 * count], "I")
            self._check_blocks(place, (number, start, size), words, tail=bool(tail) and fragment == INVALID_FRAGMENT)
        return 4 * count

    def _check_blocks(self, place: int, fields: tuple[int, int, int], words: array[int], *, tail: bool) -> None:
        number, start, size = fields
        stream, bounds = self._stream, self._bounds
        last = size % bounds.block_size if tail else bounds.block_size
        for index, word in enumerate(words):
            length = last if index == len(words) - 1 else bounds.block_size
            stored = word & BLOCK_SIZE_MASK
            is_wrong = stored != length if word & BLOCK_STORED else stored > bounds.largest_packed(length)
            if is_wrong or word > BLOCK_STORED | BLOCK_SIZE_MASK:
                what = f"block {index + 1} of {len(words)}, which gives {length} bytes, has the size word {word:#x}"
                raise stream.fault(place, f"file inode {number} of {size} bytes: {what}")
        end = start + sum(word & BLOCK_SIZE_MASK for word in words)
        has_place = end > start or bounds.is_own  # of holes alone others say anything
        if has_place and not bounds.data_start <= start <= end <= bounds.data_end:
            area = f"the data of the image, {bounds.data_start} to {bounds.data_end}"
            raise stream.fault(place, f"file inode {number}: its blocks, {start} to {end}, are not within {area}")
        if end > start:
            self.found.stretches.add((start, end))
        self._on_blocks(start, words, size)

    def _take_folder(self, place: int) -> int:
        fields = self._unpack(layout.BASIC_DIRECTORY, place)
        number, block, links, size, offset, parent = fields[5:]
        address = self._stream.find_address(place)
        self._add_folder(
            place,
            Folder(
                listing=block << 16 | offset,
                size=size,
                number=number,
                links=links,
                parent=parent,
                address=address,
                index=[],
            ),
        )
        return layout.BASIC_DIRECTORY.size

    def _take_extended_folder(self, place: int) -> int:
        record, entry = layout.EXTENDED_DIRECTORY, layout.DIRECTORY_INDEX
        fields = self._unpack(record, place)
        number, links, size, block, parent, count, offset, xattr = fields[5:]
        stream, end = self._stream, place + record.size
        index: list[tuple[int, int, bytes]] = []
        for _ in range(count):
            where, start, length = self._unpack(entry, end)
            if length >= METADATA_SIZE:
                raise stream.fault(place, f"directory inode {number}: its index has a name of {length + 1} bytes")
            stream.require(end, entry.size + length + 1)
            index.append((where, start, stream.data[end + entry.size : end + entry.size + length + 1]))
            end += entry.size + length + 1
        self._note(place, number, 1, xattr)  # the links of directories are not names
        address = stream.find_address(place)
        self._add_folder(
            place,
            Folder(
                listing=block << 16 | offset,
                size=size,
                number=number,
                links=links,
                parent=parent,
                address=address,
                index=index,
            ),
        )
        return end - place

    def _add_folder(self, place: int, folder: Folder) -> None:
        if folder.listing & 0xFFFF >= METADATA_SIZE:
            raise self._stream.fault(place, f"directory inode {folder.number}: its listing begins outside of a block")
        self.found.folders.append(folder)

    def _take_special(self, place: int) -> int:
        """A symbolic link, device, pipe or socket."""
        stream = self._stream
        (kind,) = layout.U16.unpack_from(stream.data, place)
        basic = kind - layout.EXTENDED if kind > layout.EXTENDED else kind
        record = {3: layout.SYMLINK, 4: layout.DEVICE, 5: layout.DEVICE}.get(basic, layout.IPC)
        fields = self._unpack(record, place)
        number, links, end = fields[5], fields[6], place + record.size
        if basic == 3:
            if not 0 < fields[7] <= 0xFFFF:
                raise stream.fault(place, f"symbolic link inode {number} has a target of {fields[7]} bytes")
            end += fields[7]
        xattr = INVALID_XATTR
        if kind > layout.EXTENDED:
            (xattr,) = self._unpack(layout.U32, end)
            end += layout.U32.size
        stream.require(place, end - place)
        self._note(place, number, links, xattr)
        return end - place

    def _note(self, place: int, number: int, links: int, xattr: int) -> None:
        if links != 1:
            self.found.links[number] = links
        if xattr != INVALID_XATTR and xattr >= self._bounds.xattrs:
            message = f"inode {number} has the set of attributes {xattr} of {self._bounds.xattrs}"
            raise self._stream.fault(place, message)
