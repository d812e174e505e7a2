# SPDX-License-Identifier: BSD-3-Clause
"""A decoder for LZO1X data, the compressor of some old SquashFS images. Output and every copy are bounded.

The stream is a series of instructions, each a copy from earlier output followed by up to three literal bytes; what the
bytes 0-15 mean depends on how many literals came before. Described in the kernel's Documentation/staging/lzo.rst.
"""

from __future__ import annotations

from kedge.base.tree import Buffer
from kedge.errors import CorruptImage


class _Decoder:
    """Reads one LZO1X stream; `position` is where the next instruction stands."""

    def __init__(self, data: bytes, limit: int) -> None:
        self.data = data
        self.limit = limit
        self.position = 0
        self.output = bytearray()

    def byte(self) -> int:
        position = self.position
        if position >= len(self.data):
            raise CorruptImage("lzo data is cut short")
        self.position = position + 1
        return self.data[position]

    def length(self, base: int) -> int:
        """A length that continues over zero bytes, 255 each."""
        start = self.position
        end = start
        while end < len(self.data) and self.data[end] == 0:
            end += 1
        self.position = end
        total = base + 255 * (end - start) + self.byte()
        if total > self.limit + 16:
            raise CorruptImage(f"lzo data expands to more than {self.limit} bytes")
        return total

    def literals(self, count: int) -> None:
        end = self.position + count
        if end > len(self.data):
            raise CorruptImage("lzo data is cut short")
        self.output += self.data[self.position : end]
        self.position = end
        if len(self.output) > self.limit:
            raise CorruptImage(f"lzo data expands to more than {self.limit} bytes")

    def copy(self, distance: int, count: int) -> None:
        output = self.output
        start = len(output) - distance
        if start < 0:
            raise CorruptImage("lzo data refers to bytes before its start")
        if len(output) + count > self.limit:
            raise CorruptImage(f"lzo data expands to more than {self.limit} bytes")
        if distance >= count:
            output += output[start : start + count]
        else:  # the copy overlaps what it writes: a repeating pattern
            output += (bytes(output[start:]) * (count // distance + 1))[:count]

    def short_match(self, code: int, state: int) -> tuple[int, int, int]:
        """Instructions 0-15 after literals: distance, length and how many literals follow."""
        high = self.byte()
        if state == 4:
            return 2049 + (code >> 2) + (high << 2), 3, code & 3
        return 1 + (code >> 2) + (high << 2), 2, code & 3

    def match(self, code: int) -> tuple[int, int, int]:
        """Instructions 16-255; distance 0 is the end of the stream."""
        if code >= 64:
            high = self.byte()
            return 1 + ((code >> 2) & 7) + (high << 3), (code >> 5) + 1, code & 3
        if code >= 32:
            count = 2 + (code & 31 or self.length(31))
            low = self.byte()
            tail = low | self.byte() << 8
            return 1 + (tail >> 2), count, tail & 3
        count = 2 + (code & 7 or self.length(7))
        low = self.byte()
        tail = low | self.byte() << 8
        distance = ((code & 8) << 11) + (tail >> 2)
        return (distance + 16384 if distance else 0), count, tail & 3

    def run(self) -> bytes:
        state = 0  # literals that came just before: 0-3, or 4 for a long run
        if self.data[:1] > b"\x11":
            count = self.byte() - 17
            self.literals(count)
            state = min(count, 4)
        while True:
            code = self.byte()
            if code < 16 and state == 0:
                self.literals(3 + (code or self.length(15)))
                state = 4
                continue
            distance, count, state = self.short_match(code, state) if code < 16 else self.match(code)
            if distance == 0:
                return bytes(self.output)
            self.copy(distance, count)
            self.literals(state)


def decompress_lzo(data: Buffer, limit: int) -> bytes:
    """The decompressed block; `CorruptImage` if it is damaged or would be larger than `limit`."""
    return _Decoder(bytes(data), limit).run()
