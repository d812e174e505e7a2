# SPDX-License-Identifier: BSD-3-Clause
"""Pieces of layers on their way from the threads that inflate them to the one that reads the tar.

Every piece that waits takes a place. A feed has a few places of its own; feeds of several layers share others, which
go to the layer that is read first. So memory is bounded by the places, whatever the layers hold.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import cast

from kedge.base.packed_blocks import PackedBlocks
from kedge.image.layers.parcels import Parts
from kedge.system.threads import start_thread

OWN_PLACES = 16  # pieces between the thread that inflates and the one that reads, where nothing else is said
# What takes a place: a piece, or parts of a tar that came together
_Load = bytes | Parts
# A load, the end or an error; and whether its place is shared
_Item = tuple["_Load | BaseException | None", bool]
FAREWELL = 0.2  # seconds to wait for the thread at the end; it may wait for bytes that do not come


class SharedPlaces:
    """Places for pieces of layers that are inflated ahead; the feeds in the order in which they are read.

    The reader's thread alone gives places back, so that it takes no lock: a signal's handler may raise in it.
    """

    def __init__(self, count: int) -> None:
        self.feeds: list[PieceFeed] = []
        self._spare: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(count):
            self._spare.put(None)

    def take(self) -> bool:
        """Take a place, if one is left; by any thread."""
        try:
            self._spare.get_nowait()
        except queue.Empty:
            return False
        return True

    def give_back(self) -> None:
        """A piece was read: its place goes to the first layer that waits for one."""
        self._spare.put(None)
        for feed in self.feeds:
            if feed.is_waiting:
                if self.take():
                    feed.add_place()
                return


class PieceFeed:
    """Iterates over a generator that runs on a thread of its own, or right here when no thread can be had.

    Errors of the generator are raised to the reader. `close` must be called; it ends the thread and the generator.

    Two simple queues, because they are safe where a signal's handler raises in the reader: `queue.Queue` would leave
    its lock held, and `close` wait for it for ever. Each item takes one of the places of the second queue; True is a
    place that is shared. Those of its own come back to it, so that the layer in hand never waits for others.
    """

    def __init__(
        self,
        pieces: Iterator[bytes] | Iterator[Parts],
        *,
        threaded: bool,
        shared: SharedPlaces | None = None,
        places: int = OWN_PLACES,
    ) -> None:
        self._pieces = pieces
        self._shared = shared
        self._items: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._places: queue.SimpleQueue[bool] = queue.SimpleQueue()
        for _ in range(places):
            self._places.put(False)
        self.is_waiting = False  # for a place
        self.is_over = False  # all of it was taken in
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._ended = False
        self._parts: Iterator[bytes | PackedBlocks] = iter(())  # of the parcel in hand
        if threaded:
            self._start()

    @property
    def is_threaded(self) -> bool:
        """Whether a thread fills it."""
        return self._thread is not None

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="kedge-inflate", daemon=True)
        self._thread = thread
        try:
            if not start_thread(thread):
                self._thread = None  # the reader runs the generator: slower, but it works
        except BaseException:  # by a signal's handler; the thread may run, and nobody will close this feed
            self.stop()
            raise

    def _run(self) -> None:
        last: BaseException | None = None
        try:
            for piece in self._pieces:
                if not self._put(piece):
                    break
        except BaseException as problem:  # raised again in the reader's thread
            last = problem
        try:
            _close(self._pieces)
        except BaseException as problem:
            last = last or problem
        self.is_over = True
        self._put(last)

    def _put(self, item: _Load | BaseException | None) -> bool:
        """Wait for a place; whether the reader still wants the item."""
        is_shared = self._wait_for_place()
        self._items.put((item, is_shared))
        return not self._is_stopped

    def _wait_for_place(self) -> bool:
        if self._shared is None:
            return self._places.get()
        if self._shared.take():  # first: those of its own are kept for when there is no other
            return True
        try:
            return self._places.get_nowait()
        except queue.Empty:
            self.is_waiting = True  # before the look at what is shared: a place given back after it comes to us
        is_shared = self._shared.take() or self._places.get()
        self.is_waiting = False
        return is_shared

    def add_place(self) -> None:
        """Let one more piece wait, in a shared place."""
        self._places.put(True)

    def __iter__(self) -> Iterator[bytes | PackedBlocks]:
        return self

    def __next__(self) -> bytes | PackedBlocks:
        for part in self._parts:
            return part
        load = next(self._pieces) if self._thread is None else self._take()
        if isinstance(load, bytes):
            return load
        self._parts = iter(cast(Parts, load))
        return next(self)

    def _take(self) -> _Load:
        if self._ended:
            raise StopIteration
        item, is_shared = self._items.get()
        if is_shared and self._shared is not None:
            self._shared.give_back()
        else:
            self._places.put(False)
        if isinstance(item, bytes | list):
            return item
        self._ended = True
        if item is None:
            raise StopIteration
        raise item

    def drain(self) -> None:
        """Read to the end: only then are digests verified."""
        for _ in self:
            pass

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._is_stopped = True
        self._ended = True
        cancel = getattr(self._pieces, "cancel", None)
        if cancel is not None:
            cancel()
        if self._thread is not None:
            for _ in range(2):  # for a thread that waits for a place, and for its last word
                self._places.put(False)

    def leave(self) -> None:
        """After the last piece: give the shared places back that came here and were not needed."""
        while self._shared is not None:
            try:
                is_shared = self._places.get_nowait()
            except queue.Empty:
                return
            if is_shared:
                self._shared.give_back()

    def close(self, wait: float = FAREWELL) -> None:
        """Stop, whatever was left unread; idempotent."""
        self.stop()
        if self._thread is None:
            _close(self._pieces)
            return
        self._thread.join(max(wait, 0.0))


def _close(pieces: Iterator[bytes] | Iterator[Parts]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()
