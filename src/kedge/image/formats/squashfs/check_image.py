# SPDX-License-Identifier: BSD-3-Clause
"""Looks at a whole image: superblock, all tables, every inode and listing, and whether they fit together.

Contents are not read, unless asked for. Of the writer this knows nothing but `layout`: what it got wrong is to be found
here before a user finds it. Damage is `CorruptImage`, with the table, the offset and the path where it can be told.
"""

from __future__ import annotations

import operator
import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from kedge.errors import CorruptImage, KedgeError, UnsupportedFormat
from kedge.image.formats.compression.blocks import BlockCodec, codec_of_image
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.block_reader import BlockPlace, BlockReader
from kedge.image.formats.squashfs.check_inodes import Bounds, Folder, InodeCheck, Inodes
from kedge.image.formats.squashfs.check_tables import TableStream, read_indexed, read_words
from kedge.image.formats.squashfs.layout import BLOCK_SIZE_MASK, BLOCK_STORED, INVALID_TABLE
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
