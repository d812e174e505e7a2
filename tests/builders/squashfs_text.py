# SPDX-License-Identifier: BSD-3-Clause
"""What a SquashFS image says, as text: every field, in words and numbers, from the bytes alone.

Written after the description of the format, and sharing nothing with kedge: a fault in a constant or layout that
kedge's writer and reader have in common is seen here. It knows images whose blocks are stored or made by zlib.
"""

from __future__ import annotations

import struct
import zlib
from itertools import groupby

_KINDS = ("", "directory", "file", "symlink", "block", "character", "fifo", "socket")
_HEAD = (
    *("magic", "inodes", "mtime", "block_size", "fragments", "compressor", "block_log", "flags", "ids", "major"),
    *("minor", "root", "used", "id_table", "xattr_table", "inode_table", "directory_table", "fragment_table"),
    "export_table",
)
_NONE = 0xFFFFFFFFFFFFFFFF


def write_text(image: bytes) -> list[str]:
    """Lines for the superblock, the tables, and the inodes in the order of their numbers with what they hold."""
    return _Text(image).list_lines()


class _Text:
    def __init__(self, image: bytes) -> None:
        self.image = image
        self.head = dict(zip(_HEAD, struct.unpack_from("<5I6H8Q", image), strict=True))
        head = self.head
        self.ids = [each for (each,) in struct.iter_unpack("<I", self.read_indexed("id_table", head["ids"], 4))]
        self.fragments = [*struct.iter_unpack("<QII", self.read_indexed("fragment_table", head["fragments"], 16))]
        exported = self.read_indexed("export_table", head["inodes"], 8)
        self.addresses = [each for (each,) in struct.iter_unpack("<Q", exported)]
        self.inodes = self.read_stream(head["inode_table"], head["directory_table"])
        ends = [index for index in (self.find_blocks("fragment_table"), self.find_blocks("export_table")) if index]
        self.directories = self.read_stream(head["directory_table"], ends[0])

    def list_lines(self) -> list[str]:
        head = self.head
        named = [name for name in _HEAD if not name.endswith("_table") and name not in ("root", "used")]
        lines = [" ".join(f"{name}={head[name]:#x}" for name in named)]
        if head["flags"] & 0x400:
            lines.append(f"options {self.read_block(96)[0].hex()}")
        lines.append(f"owners {' '.join(map(str, self.ids))}")
        lines += [f"fragment at {start}: {show_word(word)}, {unused}" for start, word, unused in self.fragments]
        lines += self.list_xattrs()
        for number, address in enumerate(self.addresses, 1):
            lines += self.show_inode(number, address)
        root = next(number for number, address in enumerate(self.addresses, 1) if address == head["root"])
        assert not any(self.image[head["used"] :])
        lines.append(f"root {root}, used {head['used']} of {len(self.image)}")
        return lines

    # -- blocks of metadata

    def read_block(self, place: int) -> tuple[bytes, int]:
        (word,) = struct.unpack_from("<H", self.image, place)
        size = word & 0x7FFF
        data = self.image[place + 2 : place + 2 + size]
        assert len(data) == size
        return (data if word & 0x8000 else zlib.decompress(data)), place + 2 + size

    def read_stream(self, start: int, end: int) -> tuple[bytes, list[int]]:
        """All bytes, and where each block begins behind `start`."""
        data, starts, place = b"", list[int](), start
        while place < end:
            assert len(data) == 8192 * len(starts), "a block in the middle is not full"
            starts.append(place - start)
            block, place = self.read_block(place)
            data += block
        assert place == end, "the table does not end where the next one begins"
        return data, starts

    def find_blocks(self, table: str) -> int:
        return int(struct.unpack_from("<Q", self.image, self.head[table])[0]) if self.head[table] != _NONE else 0

    def read_indexed(self, table: str, count: int, size: int) -> bytes:
        index = self.head[table]
        blocks = -(-count * size // 8192)
        data, following = b"", -1
        for (place,) in struct.iter_unpack("<Q", self.image[index : index + 8 * blocks]):
            assert following in (-1, place), "blocks of a table are not one behind the other"
            block, following = self.read_block(place)
            data += block
        assert len(data) == count * size
        assert following in (-1, index), "the index is not behind its blocks"
        return data

    def seek(self, stream: tuple[bytes, list[int]], block: int, offset: int) -> int:
        return stream[1].index(block) * 8192 + offset

    # -- attributes

    def list_xattrs(self) -> list[str]:
        table = self.head["xattr_table"]
        if table == _NONE:
            return []
        start, count, unused = struct.unpack_from("<QII", self.image, table)
        blocks = -(-count * 16 // 8192)
        places = [each for (each,) in struct.iter_unpack("<Q", self.image[table + 16 : table + 16 + 8 * blocks])]
        assert self.head["used"] == table + 16 + 8 * blocks
        entries = self.read_stream(start, places[0])
        ids, _ = self.read_stream(places[0], table)
        lines = [f"attributes: {count} sets, {unused}"]
        for address, number, size in struct.iter_unpack("<QII", ids):
            place = first = self.seek(entries, address >> 16, address & 0xFFFF)
            shown = []
            for _ in range(number):
                prefix, length = struct.unpack_from("<HH", entries[0], place)
                name = entries[0][place + 4 : place + 4 + length]
                (room,) = struct.unpack_from("<I", entries[0], place + 4 + length)
                place += 8 + length + room
                shown.append(f"{prefix}:{name.decode()}={show_content(entries[0][place - room : place])}")
            assert place - first == size
            lines.append(f"  {', '.join(shown)}")
        return lines

    # -- inodes

    def show_inode(self, number: int, address: int) -> list[str]:
        data = self.inodes[0]
        place = self.seek(self.inodes, address >> 16, address & 0xFFFF)
        kind, mode, user, group, mtime, own = struct.unpack_from("<HHHHII", data, place)
        assert own == number, "the export table names another inode"
        basic, place = (kind - 1) % 7 + 1, place + 16
        extended = "extended " if kind > 7 else ""
        text = f"{number} {extended}{_KINDS[basic]} {mode:04o} {self.ids[user]}:{self.ids[group]} {mtime}"
        if basic == 1:
            return self.show_directory(text, place, is_extended=kind > 7)
        if basic == 2:
            return [self.show_file(text, place, is_extended=kind > 7)]
        (links,) = struct.unpack_from("<I", data, place)
        text, place = f"{text} links={links}", place + 4
        if basic == 3:
            (size,) = struct.unpack_from("<I", data, place)
            text, place = f"{text} {data[place + 4 : place + 4 + size].decode()}", place + 4 + size
        elif basic in (4, 5):
            (device,) = struct.unpack_from("<I", data, place)
            text, place = f"{text} {device:#x}", place + 4
        return [text + (f" xattr={struct.unpack_from('<I', data, place)[0]}" if extended else "")]

    def show_file(self, text: str, place: int, *, is_extended: bool) -> str:
        data = self.inodes[0]
        if is_extended:
            start, size, sparse, links, fragment, offset, xattr = struct.unpack_from("<QQQIIII", data, place)
            text += f" links={links} sparse={sparse} xattr={show_none(xattr)}"
        else:
            start, fragment, offset, size = struct.unpack_from("<IIII", data, place)
        place += 40 if is_extended else 16
        block_size = self.head["block_size"]
        count = -(-size // block_size) if fragment == 0xFFFFFFFF else size // block_size
        content, shown = b"", []
        at = start
        for word in struct.unpack_from(f"<{count}I", data, place):
            content += self.read_data(at, word) if word else bytes(min(block_size, size - len(content)))
            at += word & 0xFFFFFF
            shown.append(show_word(word))
        where = f" at {start}: {', '.join(shown)}" if count else f" start={start}"
        if fragment != 0xFFFFFFFF:
            position, word, _ = self.fragments[fragment]
            content += self.read_data(position, word)[offset : offset + size - len(content)]
            where += f" fragment {fragment} from {offset}"
        else:
            where += f" no fragment, {offset}"
        assert len(content) == size
        return f"{text} {size}{where} = {show_content(content)}"

    def read_data(self, place: int, word: int) -> bytes:
        data = self.image[place : place + (word & 0xFFFFFF)]
        return data if word & 1 << 24 else zlib.decompress(data)

    def show_directory(self, text: str, place: int, *, is_extended: bool) -> list[str]:
        data, index = self.inodes[0], list[str]()
        if is_extended:
            links, size, block, parent, count, offset, xattr = struct.unpack_from("<IIIIHHI", data, place)
            text += f" xattr={show_none(xattr)}"
            place += 24
            for _ in range(count):
                before, at, length = struct.unpack_from("<III", data, place)
                name = data[place + 12 : place + 13 + length]
                index.append(f"  index {before} in block {at}: {show_content(name)}")
                place += 13 + length
        else:
            block, links, size, offset, parent = struct.unpack_from("<IIHHI", data, place)
        lines = [f"{text} links={links} parent={parent} size={size}", *index]
        return lines + self.list_runs(block, offset, size - 3)

    def list_runs(self, block: int, offset: int, size: int) -> list[str]:
        if not size:
            return []
        listing, lines, place = self.directories[0], list[str](), self.seek(self.directories, block, offset)
        end = place + size
        while place < end:
            count, inode_block, base = struct.unpack_from("<III", listing, place)
            place += 12
            entries = []
            for _ in range(count + 1):
                inode_offset, delta, kind, length = struct.unpack_from("<HhHH", listing, place)
                name = listing[place + 8 : place + 9 + length]
                place += 9 + length
                entries.append(f"{show_content(name)} {base + delta} {_KINDS[kind]}")
                assert self.addresses[base + delta - 1] == inode_block << 16 | inode_offset
            lines.append(f"  {count + 1} in block {inode_block} from {base}: {shorten(entries)}")
        assert place == end
        return lines


def shorten(entries: list[str]) -> str:
    """All of a few, the first and last of many."""
    return ", ".join(entries) if len(entries) < 20 else f"{entries[0]} … {entries[-1]}"


def show_word(word: int) -> str:
    """The size of a stored block."""
    return "hole" if not word else f"{word & 0xFFFFFF} {'stored' if word >> 24 == 1 else f'packed {word >> 24}'}"


def show_none(number: int) -> str:
    return "none" if number == 0xFFFFFFFF else str(number)


def show_content(data: bytes) -> str:
    """Its text; more than four equal bytes by their number."""
    runs = [(byte, len(list(group))) for byte, group in groupby(data)]
    shown = [chr(byte) if 32 <= byte < 127 else f"<{byte:02x}>" for byte, _ in runs]
    return "".join(
        text * count if count < 5 else f"[{count}*{text}]" for text, (_, count) in zip(shown, runs, strict=True)
    )
