# SPDX-License-Identifier: BSD-3-Clause
"""The part of a file that an image is written to: positioned writes, and reading back what was written."""

from __future__ import annotations

import fcntl
import io
import os
import threading
from collections.abc import Callable, Sequence
from typing import BinaryIO

from kedge.base.tree import Buffer
from kedge.errors import FileProblem
from kedge.image.formats.squashfs.layout import PADDING
from kedge.system.libc import begin_writing

_STRETCH = 16 << 20  # bytes that are sent to the disk together
_VECTOR = 512  # pieces in one call; the kernel takes 1024


class OutputFile:
    """Positions are relative to where the file stood; works on descriptors, or through seek on files without one.

    While an image is being written nobody else may use the file; `read_whole` puts its position back in order.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._sent = 0  # up to here the disk was asked to take it
        file.flush()
        self._base = file.tell()
        if self._base % PADDING:
            raise ValueError(f"a SquashFS image must begin at a multiple of {PADDING}, not at {self._base}")
        try:
            self._descriptor = file.fileno()
        except (OSError, io.UnsupportedOperation):
            self._descriptor = -1
        if self._descriptor >= 0 and fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
            raise FileProblem(
                "a SquashFS image is written to a file that can also be read", hint="open it with mode w+b"
            )

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`; an OSError (no space) goes to the caller."""
        if self._descriptor < 0:
            with self._lock:
                self._file.seek(self._base + position)
                self._file.write(data)
            return
        written = os.pwrite(self._descriptor, data, self._base + position)
        while written < len(data):  # interrupted, or the disk is filling up: the next call says which
            written += os.pwrite(self._descriptor, memoryview(data)[written:], self._base + position + written)

    def write_all_at(self, position: int, pieces: Sequence[Buffer]) -> int:
        """Write the pieces one after the other, without joining them; returns how many bytes they are."""
        end = position
        for start in range(0, len(pieces), _VECTOR):
            vector = pieces[start : start + _VECTOR]
            size = sum(map(len, vector))
            written = 0 if self._descriptor < 0 else os.pwritev(self._descriptor, vector, self._base + end)
            if written < size:  # interrupted, or the disk is filling up: the next call says which
                self.write_at(end + written, memoryview(b"".join(vector))[written:])
            end += size
        return end - position

    def send(self, end: int) -> None:
        """Let the disk take all before `end`, which stays as it is, in stretches; fsync then waits for the last."""
        if end - self._sent >= _STRETCH and self._descriptor >= 0:
            begin_writing(self._descriptor, self._base + self._sent, end - self._sent)
            self._sent = end

    def read_at(self, position: int, size: int) -> bytes:
        """Read back bytes that were written."""
        if self._descriptor < 0:
            with self._lock:
                self._file.seek(self._base + position)
                return self._file.read(size)
        data = os.pread(self._descriptor, size, self._base + position)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), self._base + position + len(data))
            if not more:
                raise FileProblem("another process truncated the image while kedge wrote it")
            data += more
        return data

    def read_whole(self, size: int, read: Callable[[BinaryIO, int], object]) -> None:
        """Let `read` have the file and the image's start; then position it behind the image for whoever writes next."""
        read(self._file, self._base)
        self._file.seek(self._base + size)
