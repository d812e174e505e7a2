# SPDX-License-Identifier: BSD-3-Clause
"""Looks at a whole image: superblock, all tables, every inode and listing, and whether they fit together.

Contents are not read, unless asked for. Of the writer this knows nothing but `layout`: what it got wrong is to be found
here before a user finds it. Damage is `CorruptImage`, with the table, the offset and the path where it can be told.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import BinaryIO

from kedge.errors import CorruptImage, KedgeError, UnsupportedFormat
from kedge.image.formats.compression.blocks import BlockCodec, codec_of_image
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.block_reader import BlockPlace, BlockReader
from kedge.image.formats.squashfs.layout import (
    BLOCK_SIZE_MASK,
    BLOCK_STORED,
    INVALID_FRAGMENT,
    INVALID_TABLE,
    INVALID_XATTR,
    METADATA_SIZE,
    METADATA_STORED,
    U64,
)
from kedge.image.formats.squashfs.metadata_reader import ImageRange, corrupt
from kedge.image.formats.squashfs.reader import SquashReader, read_superblock
from kedge.image.formats.squashfs.xattr_reader import XattrReader

# Every listing of an image: names in order, each for an inode that is where and what the listing says.

_FOLDER = 1
_ROW = array("H", range(layout.DIRECTORY_RUN))  # differences of numbers in a row
_NO_NAMES = frozenset((b".", b".."))
_DROPPED = 4 << 20  # bytes of the table that are kept behind the listing in hand, about
MOST_NAMES = 1 << 24  # bounds the time that an image costs whose directories share a listing
_NAME_LIMIT = 256  # of the format; Linux takes 255


class ListingCheck:
    """Goes through the listings in the order in which they are stored; `folder` is the one in hand."""

    def __init__(self, stream: TableStream, inodes: Inodes) -> None:
        self.folder: Folder | None = None
        self.names = bytearray(len(inodes.kinds))  # whether an inode has one
        self.more_names: dict[int, int] = {}  # how many beyond the first
        self.parents: dict[int, int] = {}  # of directories, by number
        self.children: dict[int, int] = {}  # how many directories one has
        self._stream = stream
        self._inodes = inodes
        self._count = 0  # of names

    def run(self) -> None:
        """Look at all; raises `CorruptImage`."""
        stream = self._stream
        for folder in sorted(self._inodes.folders, key=lambda folder: folder.listing):
            size = folder.size - layout.EMPTY_DIRECTORY_SIZE
            if size <= 0:  # some writers give an empty directory the size 0
                continue
            self.folder = folder
            place = stream.find_place(folder.listing)
            if place < 0:
                raise stream.fault(0, f"directory inode {folder.number}: there is nothing at its listing's address")
            if place > _DROPPED:
                stream.drop(place)
                place = 0
            stream.require(place, size)
            self._check_listing(folder, place, size)
        self.folder = None

    def _check_listing(self, folder: Folder, begin: int, size: int) -> None:
        names: list[bytes] = []
        runs: dict[int, bytes] = {}
        place, end = begin, begin + size
        try:
            while place < end:
                before, run = len(names), place
                place = self._check_run(folder, run, end, names)
                if folder.index:
                    runs[run - begin] = names[before]
        except (struct.error, IndexError):
            raise self._fault(
                folder, place, "its listing is cut short, or refers to inodes that are not there"
            ) from None
        if place != end:
            raise self._fault(folder, place, f"its listing has {place - begin} bytes and should have {size}")
        self._count += len(names)
        if self._count > MOST_NAMES:
            raise UnsupportedFormat(f"the SquashFS image has more names than kedge checks, {MOST_NAMES}")
        self._check_names(folder, names)
        self._check_index(folder, begin, runs)

    def _check_run(self, folder: Folder, place: int, end: int, names: list[bytes]) -> int:
        """A header with its entries; returns where they end."""
        count, block, base = layout.DIRECTORY_HEADER.unpack_from(self._stream.data, place)
        if count >= layout.DIRECTORY_RUN:
            raise self._fault(folder, place, f"a header of its listing announces {count + 1} entries")
        header = (count + 1, block << 16, base)
        place += layout.DIRECTORY_HEADER.size
        stop = self._take_files(place, header, names) or self._take_each(folder, place, header, names)
        if stop > end:
            raise self._fault(folder, stop, "the entries of its listing do not fit in its size")
        return stop

    def _take_files(self, place: int, header: tuple[int, int, int], names: list[bytes]) -> int:
        """Entries whose inodes are numbered in a row and have no other names, none a directory: by columns.

        Returns where they end; 0, and nothing is noted, where anything is not in order or not of this kind.
        """
        data, (count, block, base) = self._stream.data, header
        heads: list[bytes] = []
        found: list[bytes] = []
        for _ in range(count):
            stop = place + 9 + data[place + 6]
            heads.append(data[place : place + 8])
            found.append(data[place + 8 : stop])
            place = stop
        columns = read_words(b"".join(heads), "H")
        kinds = self._inodes.kinds[base : base + count]
        addresses = array("Q", [block | offset for offset in columns[0::4]])
        if (
            len(data) < place
            or not base
            or any(self.names[base : base + count])
            or columns[1::4] != _ROW[:count]
            or _FOLDER in kinds
            or columns[2::4] != array("H", list(kinds))
            or max(columns[3::4]) >= _NAME_LIMIT
            or addresses != self._inodes.addresses[base : base + count]
        ):
            return 0
        self.names[base : base + count] = b"\1" * count
        names += found
        return place

    def _take_each(self, folder: Folder, place: int, header: tuple[int, int, int], names: list[bytes]) -> int:
        """Entries one by one, which finds out what is wrong with them, if anything is."""
        data, unpack = self._stream.data, layout.DIRECTORY_ENTRY.unpack_from
        addresses, kinds, known = self._inodes.addresses, self._inodes.kinds, self.names
        count, block, base = header
        for _ in range(count):
            offset, delta, kind, length = unpack(data, place)
            stop = place + 9 + length
            name = data[place + 8 : stop]
            number = base + delta
            if number < 1 or addresses[number] != block | offset or kinds[number] != kind or length >= _NAME_LIMIT:
                raise self._fault(
                    folder, place, f"{name[:80]!r}: the listing and inode {number} differ in type or place"
                )
            if kind == _FOLDER:
                self._add_child(folder, number, name)
            if known[number]:
                self.more_names[number] = self.more_names.get(number, 0) + 1
            known[number] = 1
            names.append(name)
            place = stop
        return place

    def _add_child(self, folder: Folder, number: int, name: bytes) -> None:
        if self.names[number]:
            raise self._fault(folder, 0, f"directory {name[:80]!r} has several parents")
        self.parents[number] = folder.number
        self.children[folder.number] = self.children.get(folder.number, 0) + 1

    def _check_names(self, folder: Folder, names: list[bytes]) -> None:
        joined = b"/".join(names)
        if joined.count(b"/") != len(names) - 1 or b"\0" in joined or not _NO_NAMES.isdisjoint(names):
            raise self._fault(folder, 0, "its listing has a name that no file can have")
        if any(map(operator.ge, names, names[1:])):
            raise self._fault(folder, 0, "the names of its listing are not in order, or not all different")

    def _check_index(self, folder: Folder, begin: int, runs: dict[int, bytes]) -> None:
        """An index helps readers to find a name: it has to point at runs, and say how their first names are."""
        for offset, block, name in folder.index:
            if runs.get(offset) != name or self._stream.find_address(begin + offset) >> 16 != block:
                raise self._fault(
                    folder, begin + offset, f"its index points at byte {offset}, where {name[:80]!r} is not first"
                )

    def check_links(self, root: Folder) -> None:
        """What only kedge's own images have to keep: inodes have as many names as they say, and parents are right."""
        inodes, stream = self._inodes, self._stream
        self.names[root.number] = 1
        if 0 in self.names[1:]:
            raise stream.fault(0, f"no listing has a name for inode {self.names.index(0, 1)}")
        for number in inodes.links.keys() | self.more_names.keys():
            names, links = 1 + self.more_names.get(number, 0), inodes.links.get(number, 1)
            if names != links:
                raise stream.fault(0, f"inode {number} says that it has {links} names, and it has {names}")
        for folder in inodes.folders:
            links = 2 + self.children.get(folder.number, 0)
            parent = self.parents.get(folder.number, len(inodes.kinds))
            if folder.links != links or folder.parent != parent:
                is_about = f"{folder.links} links and parent {folder.parent}, and it has {links} and {parent}"
                raise stream.fault(0, f"directory inode {folder.number} says that it has {is_about}")

    def _fault(self, folder: Folder, place: int, message: str) -> CorruptImage:
        return self._stream.fault(place, f"directory inode {folder.number}: {message}")


_HEAD = 18  # bytes: as long as what a codec puts before its data may be


@dataclass(frozen=True, slots=True)
class CheckedImage:
    """What was found in an image that is in order."""

    inodes: int
    files: int
    fragments: int


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How closely to look."""

    is_own: bool = False  # made by this kedge: also what readers do not need, and only a faulty writer gets wrong
    with_contents: bool = False  # decompress every block and fragment
    heads: int = 1 << 16  # blocks and fragments whose first bytes are read, which say their size with some codecs
    most: int = MOST_NAMES  # inodes; a larger image is not looked at, but `UnsupportedFormat`
    threads: int = 1  # that decompress
    advance: Callable[[int], object] | None = None  # told of bytes whose contents were read


def check_image(file: BinaryIO, offset: int, size: int | None, options: CheckOptions) -> CheckedImage:
    """Look at the image at an offset of a file; raises `CorruptImage` for the first thing that is wrong with it."""
    check = _ImageCheck(ImageRange(file, offset, size), options)
    try:
        return check.run()
    except CorruptImage as problem:
        path = _find_path(file, offset, size, check.address)
        if path:
            problem.context["path"] = path
            problem.args = (f"{problem.message} ({path})",)
            problem.message = problem.args[0]
        raise
    finally:
        check.close()


class _ImageCheck:
    def __init__(self, image: ImageRange, options: CheckOptions) -> None:
        self.address: int | None = None  # of the inode in hand
        self._image, self._options = image, options
        self._superblock = superblock = read_superblock(image)
        if max(superblock.inodes, superblock.fragments) > options.most:
            raise UnsupportedFormat(
                f"the SquashFS image has more inodes or fragments than kedge checks, {options.most}"
            )
        self._codec: BlockCodec = codec_of_image(superblock.compressor)
        self._blocks = BlockReader(image, self._codec, superblock.block_size, options.threads)
        self._heads = options.heads
        self._packs = superblock.flags & layout.FLAGS_ALL_STORED != layout.FLAGS_ALL_STORED
        self._read_already: set[tuple[int, int]] = set()
        self._ends: list[int] = []  # where tables begin that may follow the directory table

    def close(self) -> None:
        self._blocks.close()

    def run(self) -> CheckedImage:
        superblock, is_own = self._superblock, self._options.is_own
        data_start = self._find_data()
        ids = self._read_table("id table", superblock.id_table, superblock.ids * layout.U32.size)
        addresses = None
        if superblock.export_table != INVALID_TABLE:
            size = superblock.inodes * layout.U64.size
            addresses = read_words(self._read_table("export table", superblock.export_table, size), "Q")
        stretches, rooms = self._read_fragments(data_start)
        bounds = Bounds(
            block_size=superblock.block_size,
            data_start=data_start,
            data_end=superblock.inode_table,
            inodes=superblock.inodes,
            ids=len(ids) // layout.U32.size,
            xattrs=self._check_xattrs(),
            fragments=rooms,
            is_own=is_own,
            packs=self._packs,
        )
        inodes = self._check_inodes(bounds)
        if addresses is not None and addresses != inodes.addresses[1:]:
            raise corrupt("export table", superblock.export_table, "it does not have the addresses of the inodes")
        root = next((folder for folder in inodes.folders if folder.address == superblock.root), None)
        if root is None:
            raise corrupt("superblock", 32, f"there is no directory at the root's address {superblock.root:#x}")
        self._check_listings(inodes, root)
        if is_own:
            self._check_own(stretches, inodes)
        return CheckedImage(superblock.inodes, inodes.files, superblock.fragments)

    def _find_data(self) -> int:
        """Where the data may begin: behind the superblock and the compressor's options."""
        start = layout.SUPERBLOCK_SIZE
        if not self._superblock.flags & layout.FLAG_OPTIONS:
            return start
        word = int.from_bytes(self._image.read(start, 2, "compressor options"), "little")
        size = word & ~layout.METADATA_STORED
        if not word & layout.METADATA_STORED or not 0 < size <= 64:
            raise corrupt("compressor options", start, f"a block of {size} bytes")
        return start + 2 + size

    def _read_table(self, name: str, index: int, size: int) -> bytes:
        if not self._superblock.directory_table <= index <= self._superblock.used:
            raise corrupt("superblock", 48, f"the {name} cannot begin at {index}")
        data, start = read_indexed(self._image, self._codec, name, index, size)
        self._ends.append(start)
        return data

    def _read_fragments(self, data_start: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Where the fragments are, and how many bytes each gives."""
        superblock, entry = self._superblock, layout.FRAGMENT_ENTRY
        stretches: list[tuple[int, int]] = []
        rooms: list[int] = []
        if not superblock.fragments:
            return stretches, rooms
        table = self._read_table("fragment table", superblock.fragment_table, superblock.fragments * entry.size)
        for number, (start, word, _) in enumerate(entry.iter_unpack(table)):
            end = start + (word & BLOCK_SIZE_MASK)
            if not data_start <= start < end <= superblock.inode_table or word > BLOCK_STORED | BLOCK_SIZE_MASK:
                where = f"from {start} on with the size word {word:#x}, is not within the data of the image"
                raise corrupt("fragment table", superblock.fragment_table, f"fragment {number}, {where}")
            if end - start > superblock.block_size:
                message = f"fragment {number} has {end - start} bytes, more than a block of {superblock.block_size}"
                raise corrupt("fragment table", superblock.fragment_table, message)
            stretches.append((start, end))
            rooms.append(self._measure_fragment(start, word))
            if self._options.is_own and not word & BLOCK_STORED and (end - start >= rooms[-1] or not self._packs):
                message = f"fragment {number} is compressed from {rooms[-1]} bytes to {end - start}"
                raise corrupt("fragment table", superblock.fragment_table, message)
        return stretches, rooms

    def _measure_fragment(self, start: int, word: int) -> int:
        """How many bytes a fragment gives: by its own head, or by all of it. A block is the most it can be."""
        size = word & BLOCK_SIZE_MASK
        if self._options.with_contents:
            room = len(self._blocks.read_fragment((start, word, 0)))
            self._advance(size)
            return room
        return size if word & BLOCK_STORED else self._measure(start, size) or self._superblock.block_size

    def _measure(self, start: int, size: int) -> int | None:
        """How many bytes a compressed block gives, by its head; None where that is unknown."""
        if self._heads <= 0:
            return None
        head = self._image.read(start, min(size, _HEAD), "data block")
        try:
            room = self._codec.measure_block(head, self._superblock.block_size)
        except CorruptImage as problem:
            raise corrupt("data block", start, problem.message) from problem
        self._heads = self._heads - 1 if room is not None else 0  # the others of this codec do not say it either
        return room

    def _check_xattrs(self) -> int:
        """How many sets of attributes there are."""
        superblock = self._superblock
        if superblock.xattr_table == INVALID_TABLE:
            return 0
        self._ends.append(layout.U64.unpack(self._image.read(superblock.xattr_table, 8, "xattr table"))[0])
        reader = XattrReader(self._image, self._codec, superblock.xattr_table, superblock.used)
        if reader.count > MOST_NAMES:
            raise corrupt("xattr table", superblock.xattr_table, f"{reader.count} sets of attributes")
        for number in range(reader.count):
            reader.get(number)
        return reader.count

    def _check_inodes(self, bounds: Bounds) -> Inodes:
        superblock = self._superblock
        place = (superblock.inode_table, superblock.directory_table)
        on_blocks = self._read_blocks if self._options.with_contents else self._measure_blocks
        check = InodeCheck(TableStream(self._image, self._codec, "inode table", *place), bounds, on_blocks)
        try:
            return check.run()
        except CorruptImage:
            self.address = check.address
            raise

    def _measure_blocks(self, start: int, words: array[int], size: int) -> None:
        """Whether compressed blocks give as many bytes as the file needs of them, where their heads say how many."""
        if self._heads <= 0:
            return
        for position, word, length in self._list_places(start, words, size):
            if word and not word & BLOCK_STORED:
                room = self._measure(position, word & BLOCK_SIZE_MASK)
                if room not in (None, length):
                    raise corrupt("data block", position, f"gives {room} bytes where {length} are needed")

    def _read_blocks(self, start: int, words: array[int], size: int) -> None:
        """Decompress the blocks of a file, of which several may have the same."""
        if (start, len(words)) in self._read_already:
            return
        self._read_already.add((start, len(words)))
        for _ in self._blocks.stream(self._list_places(start, words, size)):
            pass
        self._advance(sum(word & BLOCK_SIZE_MASK for word in words))

    def _list_places(self, start: int, words: array[int], size: int) -> Iterator[BlockPlace]:
        for word in words:
            length = min(size, self._superblock.block_size)
            yield BlockPlace(start, word, length)
            start += word & BLOCK_SIZE_MASK
            size -= length

    def _advance(self, size: int) -> None:
        if self._options.advance is not None:
            self._options.advance(size)

    def _check_listings(self, inodes: Inodes, root: Folder) -> None:
        superblock = self._superblock
        end = min([place for place in self._ends if place >= superblock.directory_table], default=superblock.used)
        stream = TableStream(self._image, self._codec, "directory table", superblock.directory_table, end)
        check = ListingCheck(stream, inodes)
        try:
            check.run()
            if self._options.is_own:
                check.check_links(root)
        except CorruptImage:
            self.address = check.folder.address if check.folder is not None else None
            raise

    def _check_own(self, stretches: list[tuple[int, int]], inodes: Inodes) -> None:
        """What kedge's writer keeps: nothing lies in something else, and zeros fill the last page."""
        superblock, image = self._superblock, self._image
        last = 0
        for start, end in sorted([*stretches, *inodes.stretches]):
            if start < last:
                raise corrupt("data", start, f"what lies here, up to {end}, lies in something else that ends at {last}")
            last = end
        padding = -superblock.used % layout.PADDING
        if image.size != superblock.used + padding or any(image.read(superblock.used, padding, "padding")):
            raise corrupt("padding", superblock.used, f"the image ends at {image.size}, or not with zeros")


def _find_path(file: BinaryIO, offset: int, size: int | None, address: int | None) -> str:
    """The path of an inode, as far as the damage lets it be found; empty where there is none."""
    if address is None:
        return ""
    try:
        with SquashReader(file, offset, size) as reader:
            path = reader.find_path(address)
    except (KedgeError, OSError):
        return ""
    return "" if path is None else "/" + path.decode(errors="backslashreplace")


# Every inode of an image, in the order of the table: what it says of its blocks, its fragment, owners and attributes.
#
# There may be millions, and nearly all are files without blocks of their own: those are looked at by columns. Whatever
# columns do not find in order is read again one by one, which finds out what is wrong, if anything is.

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


# Tables of an image that is looked at as a whole: every block of each table, one after the other.
#
# The reader finds what it is asked for by addresses; here all that a table holds is read, so that nothing in it is left
# out. Blocks of a table follow each other and are full but for the last, as every known writer makes them.

_PIECE = 1 << 20  # bytes of a table, as stored, that are read together


class TableStream:
    """A table of metadata blocks: `data` is a stretch of its bytes, which grows at its end and shrinks at its start."""

    def __init__(self, image: ImageRange, codec: BlockCodec, name: str, start: int, end: int) -> None:
        self.name = name
        self.data = b""
        self.base = 0  # where `data` begins in the uncompressed table
        self.starts = array("Q")  # of the blocks read so far, from the table's start
        self._image, self._codec = image, codec
        self._start, self._end = start, end
        self._next = 0

    def grow(self) -> bool:
        """Read more; False at the table's end."""
        start = self._start + self._next
        if start >= self._end:
            return False
        raw = self._image.read(start, min(_PIECE, self._end - start), self.name)
        parts = [self.data]
        place = 0
        while place < len(raw):
            size = self._measure_block(raw, place, start)
            if place + 2 + size > len(raw):
                break
            parts.append(self._unpack(raw, place, size, start + place))
            self.starts.append(self._next + place)
            place += 2 + size
        self._next += place
        self.data = b"".join(parts)
        return True

    def _measure_block(self, raw: bytes, place: int, start: int) -> int:
        """The size of the block; one that does not end in the piece is left for the next, which begins with it."""
        if place + 2 > len(raw) and start + len(raw) < self._end:
            return METADATA_SIZE
        size = int.from_bytes(raw[place : place + 2], "little") & ~METADATA_STORED
        if not 0 < size <= METADATA_SIZE or start + place + 2 + size > self._end:
            raise corrupt(self.name, start + place, f"a metadata block cannot have {size} bytes here")
        return size

    def _unpack(self, raw: bytes, place: int, size: int, where: int) -> bytes:
        block = raw[place + 2 : place + 2 + size]
        if not raw[place + 1] << 8 & METADATA_STORED:
            try:
                block = self._codec.decompress_block(block, METADATA_SIZE)
            except CorruptImage as problem:
                raise corrupt(self.name, where, problem.message) from problem
        if len(block) != METADATA_SIZE and (where + 2 + size != self._end or not block):
            raise corrupt(self.name, where, f"a metadata block gives {len(block)} bytes and is not the last")
        return block

    def require(self, place: int, size: int) -> None:
        """Have `size` bytes from `place` of `data` on."""
        while len(self.data) < place + size:
            if not self.grow():
                raise self.fault(place, f"the table ends where {size} bytes are needed")

    def drop(self, place: int) -> None:
        """Forget what stands before `place`, which is the start from now on."""
        self.data = self.data[place:]
        self.base += place

    def find_address(self, place: int) -> int:
        """The address of what stands at `place` of `data`."""
        position = self.base + place
        return self.starts[position // METADATA_SIZE] << 16 | position % METADATA_SIZE

    def find_place(self, address: int) -> int:
        """Where in `data` an address is; -1 where it is nowhere in the table, or was dropped."""
        block, offset = address >> 16, address & 0xFFFF
        while (not self.starts or self.starts[-1] < block) and self.grow():
            pass
        number = bisect_left(self.starts, block)
        if number == len(self.starts) or self.starts[number] != block or offset >= METADATA_SIZE:
            return -1
        place = number * METADATA_SIZE + offset - self.base
        return place if place <= len(self.data) else -1

    def fault(self, place: int, message: str) -> CorruptImage:
        """The error for what stands at `place`."""
        block = (self.base + place) // METADATA_SIZE
        offset = self.starts[min(block, len(self.starts) - 1)] if self.starts else 0
        return corrupt(self.name, self._start + offset, message)


def read_indexed(image: ImageRange, codec: BlockCodec, name: str, index: int, size: int) -> tuple[bytes, int]:
    """Return all `size` bytes of a table with an index, right behind its blocks, and where the first block is."""
    count = -(-size // METADATA_SIZE)
    places = read_words(image.read(index, U64.size * count, name), "Q")
    if not count:
        return b"", index
    if list(places) != sorted(set(places)) or places[-1] >= index:
        raise corrupt(name, index, "the index is not in order")
    stream = TableStream(image, codec, name, places[0], index)
    while len(stream.data) <= size and stream.grow():
        pass
    if len(stream.data) != size or [places[0] + start for start in stream.starts] != list(places):
        raise corrupt(
            name, index, f"the index does not fit to its blocks, which give {len(stream.data)} of {size} bytes"
        )
    return stream.data, places[0]


def read_words(data: bytes, code: str) -> array[int]:
    """Numbers as an image stores them."""
    words = array(code, data)
    if sys.byteorder == "big":
        words.byteswap()
    return words
