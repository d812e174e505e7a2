# SPDX-License-Identifier: BSD-3-Clause
"""A digest computed on a thread of its own, so that who inflates does not wait for it; bounded, and exact."""

from __future__ import annotations

import hashlib
import queue
import threading

from kedge.system.threads import start_thread

_PLACES = 8  # pieces that wait to be hashed


class AsideHash:
    """Takes pieces in order; `hexdigest` waits for the last of them. `close` must be called.

    Where no thread is wanted, or none can be had, it is an ordinary hash.
    """

    def __init__(self, algorithm: str, *, threaded: bool) -> None:
        self._hash = hashlib.new(algorithm)
        self._pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if threaded:
            for _ in range(_PLACES):
                self._places.put(None)
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="kedge-hash", daemon=True)
        try:
            if start_thread(thread):  # else slower, but it works
                self._thread = thread
        except BaseException:  # by a signal's handler; the thread may run, and nobody will close this hash
            self._pieces.put(None)
            raise

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._hash.update(piece)
            self._places.put(None)

    def update(self, piece: bytes) -> None:
        """Take the next piece, which must not change any more."""
        if self._thread is None:
            self._hash.update(piece)
            return
        self._places.get()
        self._pieces.put(piece)

    def hexdigest(self) -> str:
        """The digest of all pieces; nothing may follow."""
        self.close()
        return self._hash.hexdigest()

    def close(self) -> None:
        """End the thread; idempotent."""
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()
