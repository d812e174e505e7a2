# SPDX-License-Identifier: BSD-3-Clause
"""Ingests: downloads that run on a few threads while their bytes are followed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from kedge.base.manifest import Descriptor
from kedge.image.store.download import Download
from kedge.image.store.use_marks import Use

JOIN_WAIT = 0.3  # seconds that `close` waits for a thread, which may sit in a read for a minute


class Ingest:
    """A blob that is in the cache or on its way; a context manager that stops what is not needed any more."""

    def __init__(self, descriptor: Descriptor, download: Download, use: Use, on_commit: Callable[[], None]) -> None:
        self.descriptor = descriptor
        self._download = download
        self._use = use
        self._on_commit = on_commit
        self._ended = threading.Event()
        self._is_inline = False
        self._is_closed = False
        self._steps = download.steps()
        self._stepping = threading.Lock()

    def follow(self) -> Iterator[bytes]:
        """The bytes from the first, while they arrive; ends without an error only if size and digest were right.

        May be called again, and by several threads.
        """
        return self._download.flow.follow(self.step if self._is_inline else None)

    def wait(self) -> Path:
        """The blob's path, once it is complete, verified and in its place."""
        return self._download.flow.wait(self.step if self._is_inline else None)

    def run(self) -> None:
        """Do all the work in this thread."""
        while self.step():
            pass

    def run_inline(self) -> None:
        """From now on whoever follows or waits does the work: no thread could be started."""
        self._is_inline = True

    def step(self) -> bool:
        """Do a piece of the work; False when there is none left."""
        with self._stepping:
            if self._ended.is_set():
                return False
            try:
                next(self._steps)
                return True
            except StopIteration:
                self._ended.set()
                if self._is_closed:  # and whoever closed did not wait any longer
                    self._download.flow.close()
        self._on_commit()
        return False

    def cancel(self) -> None:
        """Ask the download to stop at the next piece, without waiting for it."""
        self._download.cancelled.set()

    def close(self, wait: float = JOIN_WAIT) -> None:
        """Stop the download if it still runs, keeping what has arrived; may be called twice."""
        self._is_closed = True
        self.cancel()
        if self._stepping.acquire(timeout=max(wait, 0.0)):
            try:
                self._steps.close()
                self._ended.set()
            finally:
                self._stepping.release()
            self._download.flow.close()
        else:
            # The thread may be about to write: closed now, the file's number might be another file's.
            self._download.abandon()
            self._download.flow.stop()
        self._use.end()

    def __enter__(self) -> Ingest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Workers:
    """A few threads that run ingests in the order they were given; each ends when nothing is left to do."""

    def __init__(self, count: int) -> None:
        self._limit = max(1, count)
        self._waiting: deque[Ingest] = deque()
        self._running = 0
        self._lock = threading.Lock()

    def submit(self, ingest: Ingest) -> None:
        """Run the ingest soon; inline where no thread can be had."""
        with self._lock:
            if self._running < self._limit and self._start_thread():
                self._running += 1
            if self._running == 0:
                ingest.run_inline()
            else:
                self._waiting.append(ingest)

    def _start_thread(self) -> bool:
        thread = threading.Thread(target=self._run, name="kedge-download", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # RLIMIT_NPROC or the pids limit of the cgroup
            return False
        return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                ingest = self._waiting.popleft()
            ingest.run()
