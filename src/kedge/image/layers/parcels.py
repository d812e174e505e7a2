# SPDX-License-Identifier: BSD-3-Clause
"""What a process that packs a layer sends: the tar, with the blocks of its large files compressed, in parcels.

A parcel is put into a slot of shared memory, and one message says so: a pipe would wake both ends for every few pages,
and each time the reader would wait for its interpreter lock. Both ends are the same kedge on the same machine, so
numbers are as the machine has them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import struct
from array import array
from collections.abc import Iterator, Sequence

from kedge.base.packed_blocks import PackedBlocks
from kedge.base.tree import Buffer
from kedge.errors import KedgeError, rebuild_error
from kedge.image.formats.squashfs.layout import BLOCK_SIZE_MASK

LARGEST_PARCEL = 4 << 20
_MOST_NUMBERS = 1 << 15
_SLOT = LARGEST_PARCEL + (1 << 18)  # with the numbers that describe its parts
_SLOTS = 6
# kind, slot, bytes inflated since the last; how many numbers, bytes of the tar (or of an error) and of blocks follow
_MESSAGE = struct.Struct("=cxxxIQIII")
_PARCEL, _END, _ERROR = b"P", b"E", b"!"
_VECTOR = 512  # parts written by one call
Parts = list[bytes | PackedBlocks]


class Parcel:
    """Parts that are gathered to be sent together."""

    def __init__(self) -> None:
        self.numbers = array("I")
        self.plain: list[Buffer] = []
        self.packed: list[Buffer] = []
        self.plain_size = self.packed_size = 0

    def add_bytes(self, part: Buffer) -> None:
        """A part that is the tar as it stands."""
        self.numbers.extend((0, len(part)))
        self.plain.append(part)
        self.plain_size += len(part)

    def add_blocks(self, size: int, checksum: int, blocks: Sequence[tuple[int, Buffer]]) -> None:
        """Blocks of a file: of how many bytes, the first one's checksum; of each its size as noted, and its bytes."""
        self.numbers.extend((len(blocks), size, checksum))
        for word, data in blocks:
            self.numbers.append(word)
            if word:
                self.packed.append(data)
                self.packed_size += len(data)

    def has_room(self, other: Parcel) -> bool:
        """Whether another fits into it."""
        size = self.plain_size + self.packed_size + other.plain_size + other.packed_size
        return size <= LARGEST_PARCEL and len(self.numbers) + len(other.numbers) <= _MOST_NUMBERS

    def append(self, other: Parcel) -> None:
        """Take the parts of another."""
        self.numbers += other.numbers
        self.plain += other.plain
        self.packed += other.packed
        self.plain_size += other.plain_size
        self.packed_size += other.packed_size


class ParcelSender:
    """The end of the process that packs."""

    def __init__(self, messages: int, replies: int, memory: int) -> None:
        self._messages = messages
        self._replies = replies
        self._memory = memory
        self._free = list(range(_SLOTS))

    def send(self, parcel: Parcel, inflated: int) -> None:
        """Put a parcel into a slot, as soon as one is free."""
        while not self._free:
            freed = os.read(self._replies, _SLOTS)
            if not freed:
                raise BrokenPipeError
            self._free += freed
        sizes = len(parcel.numbers), parcel.plain_size, parcel.packed_size
        if 4 * sizes[0] + sizes[1] + sizes[2] > _SLOT:  # it would be written over the next one
            raise ValueError(f"a parcel of {sum(sizes)} bytes has no room in a slot")
        slot = self._free.pop()
        parts = [memoryview(parcel.numbers).cast("B"), *parcel.plain, *parcel.packed]
        _write_at(self._memory, slot * _SLOT, parts)
        self._write(_MESSAGE.pack(_PARCEL, slot, inflated, *sizes))

    def end(self) -> None:
        """Say that all was sent, and that the layer is what it should be."""
        self._write(_MESSAGE.pack(_END, 0, 0, 0, 0, 0))

    def fail(self, problem: BaseException) -> None:
        """What came was not a layer."""
        fields = (
            problem.as_dict() if isinstance(problem, KedgeError) else {"bug": f"{type(problem).__name__}: {problem}"}
        )
        text = json.dumps(fields).encode()
        self._write(_MESSAGE.pack(_ERROR, 0, 0, 0, len(text), 0) + text)

    def _write(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._messages, message) :]


def receive_parcels(messages: int, replies: int, memory: int) -> Iterator[tuple[Parts, int]]:
    """Parcels as they come, with the number of bytes inflated for them; raises what the other end met.

    EOFError where it ends without a word: the process was killed.
    """
    while True:
        kind, slot, inflated, count, plain, packed = _MESSAGE.unpack(_receive(messages, _MESSAGE.size))
        if kind == _END:
            return
        if kind == _ERROR:
            fields = json.loads(_receive(messages, plain))
            raise RuntimeError(fields["bug"]) if "bug" in fields else rebuild_error(fields)
        numbers = array("I", bytes(count * 4))
        _read_at(memory, slot * _SLOT, memoryview(numbers).cast("B"))
        place = slot * _SLOT + count * 4
        tar, blocks = os.pread(memory, plain, place), _make_room(packed)
        _read_at(memory, place + plain, blocks)
        with contextlib.suppress(BrokenPipeError):  # it was the last, and the process has ended
            os.write(replies, bytes((slot,)))
        yield _split(numbers, tar, blocks), inflated


def _make_room(size: int) -> memoryview:
    """Memory that goes back to the system when nobody needs it any more, and not to whoever allocates next."""
    return memoryview(mmap.mmap(-1, size)) if size else memoryview(b"")


def _split(numbers: array[int], tar: bytes, blocks: memoryview) -> Parts:
    """The parts of a parcel, in their order."""
    parts: Parts = []
    index = start = first = 0
    while index < len(numbers):
        count, size = numbers[index], numbers[index + 1]
        if not count:
            parts.append(tar[start : start + size])
            start += size
            index += 2
            continue
        words = numbers[index + 3 : index + 3 + count]
        end = first + sum([word & BLOCK_SIZE_MASK for word in words])
        parts.append(PackedBlocks(size, numbers[index + 2], words, blocks[first:end]))
        first = end
        index += 3 + count
    return parts


def _receive(messages: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(messages, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _read_at(memory: int, offset: int, view: memoryview) -> None:
    while view:
        count = os.preadv(memory, [view], offset)
        if not count:
            raise EOFError
        view, offset = view[count:], offset + count


def _write_at(memory: int, offset: int, parts: Sequence[Buffer]) -> None:
    for first in range(0, len(parts), _VECTOR):
        vector = parts[first : first + _VECTOR]
        size = sum(map(len, vector))
        if os.pwritev(memory, vector, offset) != size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        offset += size
