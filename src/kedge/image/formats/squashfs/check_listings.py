# SPDX-License-Identifier: BSD-3-Clause
"""Every listing of an image: names in order, each for an inode that is where and what the listing says."""

from __future__ import annotations

import operator
import struct
from array import array

from kedge.errors import CorruptImage, UnsupportedFormat
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.check_inodes import Folder, Inodes
from kedge.image.formats.squashfs.check_tables import TableStream, read_words

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
