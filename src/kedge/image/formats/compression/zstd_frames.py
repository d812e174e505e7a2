# SPDX-License-Identifier: BSD-3-Clause
"""Follows the frames and blocks of a zstd stream without decompressing it (RFC 8878, section 3.1).

The library decompresses; this says whether the stream ends where a frame ends, that nothing but frames is in it, and
refuses windows that would need more memory than we give.
"""

from __future__ import annotations

from collections.abc import Generator

from kedge.errors import CorruptImage

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def is_skippable(magic: bytes) -> bool:
    """Whether these four bytes begin a skippable frame."""
    return len(magic) == 4 and magic[0] & 0xF0 == 0x50 and magic[1:] == b"\x2a\x4d\x18"


class FrameTracker:
    """Is fed all bytes of a stream; raises `CorruptImage` for what is no zstd stream."""

    def __init__(self, maximum_window: int) -> None:
        self._maximum_window = maximum_window
        self._steps = self._follow()
        self._need = next(self._steps)  # positive: bytes to hand over; negative: bytes to skip
        self._held = bytearray()
        self._inside = False

    @property
    def is_complete(self) -> bool:
        """Whether the stream may end here."""
        return not self._inside and not self._held

    def feed(self, data: bytes) -> bytes:
        """Look at the next bytes and return them."""
        position, end = 0, len(data)
        while position < end:
            if self._need < 0:
                step = min(-self._need, end - position)
                position += step
                self._need += step
                if self._need == 0:
                    self._need = self._steps.send(b"")
                continue
            step = min(self._need - len(self._held), end - position)
            self._held += data[position : position + step]
            position += step
            if len(self._held) == self._need:
                taken = bytes(self._held)
                self._held.clear()
                self._need = self._steps.send(taken)
        return data

    def _follow(self) -> Generator[int, bytes, None]:
        while True:
            self._inside = False
            magic = yield 4
            self._inside = True
            if is_skippable(magic):
                size = int.from_bytes((yield 4), "little")
                if size:
                    yield -size
            elif magic == ZSTD_MAGIC:
                yield from self._follow_frame()
            else:
                raise CorruptImage("data that is not a zstd frame follows")

    def _follow_frame(self) -> Generator[int, bytes, None]:
        descriptor = (yield 1)[0]
        is_single = bool(descriptor & 0x20)
        sizes = (1 if is_single else 0, 2, 4, 8)
        header_size = (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3] + sizes[descriptor >> 6]
        header = (yield header_size) if header_size else b""
        if not is_single:
            base = 1 << (10 + (header[0] >> 3))
            window = base + (base >> 3) * (header[0] & 7)
            if window > self._maximum_window:
                raise CorruptImage(f"it needs a window of {window} bytes, the limit is {self._maximum_window}")
        last = False
        while not last:
            word = int.from_bytes((yield 3), "little")
            last = bool(word & 1)
            size = 1 if (word >> 1) & 3 == 1 else word >> 3
            if size:
                yield -size
        if descriptor & 0x04:
            yield 4
