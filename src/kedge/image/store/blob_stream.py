# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of one blob on their way from the download to those who follow it.

A follower that keeps up takes each piece from memory; one that lags, or comes later, reads the file, which is then in
the page cache. So a slow follower never holds up the network, and memory stays bounded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.errors import DigestMismatch, KedgeError
from kedge.system.files import explained

_WINDOW = 4 << 20  # bytes of the newest pieces that are kept in memory
_READ = 1 << 20


@frozen
class _View:
    """What a follower sees at one moment."""

    generation: int
    available: int
    piece: bytes | None


class Flow:
    """One writer, any number of followers; every method may be called from any thread."""

    def __init__(self, size: int, where: str) -> None:
        self._size = size
        self._where = where
        self._changed = threading.Condition()
        self._file = -1
        self._generation = 0
        self._available = 0
        self._recent: dict[int, bytes] = {}
        self._recent_size = 0
        self._error: BaseException | None = None
        self._is_verified = False
        self._result: Path | None = None

    def begin(self, descriptor: int) -> None:
        """The bytes stand in this open file from now on; the flow owns it. Whatever came before does not count."""
        with self._changed:
            if self._file >= 0:
                os.close(self._file)
                self._generation += 1
            self._file = descriptor
            self._available = 0
            self._recent.clear()
            self._recent_size = 0
            self._changed.notify_all()

    def extend(self, count: int) -> None:
        """Let so many more bytes of the file be read."""
        with self._changed:
            self._available += count
            self._changed.notify_all()

    def publish(self, piece: bytes) -> None:
        """Publish a piece that was written at the end of the file."""
        with self._changed:
            self._recent[self._available] = piece
            self._recent_size += len(piece)
            while self._recent_size > _WINDOW and len(self._recent) > 1:
                self._recent_size -= len(self._recent.pop(next(iter(self._recent))))
            self._available += len(piece)
            self._changed.notify_all()

    def verify(self) -> None:
        """Say that all bytes are there and have the right digest: followers may end."""
        with self._changed:
            self._is_verified = True
            self._changed.notify_all()

    def finish(self, result: Path) -> None:
        """The blob is complete in the cache."""
        with self._changed:
            self._is_verified = True
            self._result = result
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End the stream: followers raise this error, or the first where there are several."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def stop(self) -> None:
        """If the blob is not complete, whoever still follows is told that it was stopped."""
        with self._changed:
            if self._result is None and self._error is None:
                self._error = KedgeError(f"the download of {self._where} was stopped")
                self._changed.notify_all()

    def close(self) -> None:
        """Stop, and let go of the file; no further writes."""
        self.stop()
        with self._changed:
            self._recent.clear()
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def wait(self, drive: Callable[[], bool] | None) -> Path:
        """The finished blob; raises what the download raised. `drive`, if given, does a step of the work itself."""
        while True:
            with self._changed:
                while drive is None and self._result is None and self._error is None:
                    self._changed.wait()
                if self._error is not None:
                    raise self._error
                if self._result is not None:
                    return self._result
            if drive is not None:
                drive()

    def follow(self, drive: Callable[[], bool] | None) -> Iterator[bytes]:
        """Every byte from the first, as it arrives; ends only when the digest was found right."""
        position = 0
        generation = -1
        descriptor = -1
        try:
            while (view := self._look(position, generation, drive)) is not None:
                if view.generation != generation:
                    old, descriptor = descriptor, -1
                    descriptor, generation = self._reopen(old)
                    continue
                piece = view.piece
                if piece is None:
                    with explained(self._where):
                        piece = os.pread(descriptor, min(_READ, view.available - position), position)
                    if not piece:
                        raise self._restarted()
                position += len(piece)
                yield piece
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _look(self, position: int, generation: int, drive: Callable[[], bool] | None) -> _View | None:
        """Wait for bytes at `position`; None at the verified end."""
        while True:
            with self._changed:
                while drive is None and not self._has_news(position, generation):
                    self._changed.wait()
                if self._error is not None:
                    raise self._error
                if position and generation != self._generation:
                    raise self._restarted()  # what was given out may be wrong, whatever comes now
                if position < self._available:
                    return _View(self._generation, self._available, self._recent.get(position))
                if self._is_verified:
                    return None
            if drive is not None:
                drive()

    def _has_news(self, position: int, generation: int) -> bool:
        is_restarted = bool(position) and generation != self._generation
        return self._error is not None or position < self._available or self._is_verified or is_restarted

    def _reopen(self, old: int) -> tuple[int, int]:
        with self._changed:
            if old >= 0:
                os.close(old)
            if self._file >= 0:
                return os.dup(self._file), self._generation
            with explained(self._where):
                return os.open(self._result or "", os.O_RDONLY | os.O_CLOEXEC), self._generation

    def _restarted(self) -> DigestMismatch:
        return DigestMismatch(
            f"{self._where}: kedge removed the damaged rest of an interrupted download",
            hint="run the command again to download this blob from the start",
        )
