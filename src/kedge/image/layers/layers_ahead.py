# SPDX-License-Identifier: BSD-3-Clause
"""Layers in the order in which they are read, the next ones inflated while the one in hand is read.

The tar of one layer is read after the other, because a higher layer decides what of a lower one shows. Inflating knows
no such order: threads do it side by side, or with many processors processes, which also compress what is certain to be
a block of its own. What waits takes places in memory, as many as `FlattenOptions.ahead` allows.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kedge.base.packed_blocks import Packing
from kedge.errors import LimitReached
from kedge.image.layers.layer_source import PIECE, LayerSource, count_bytes, inflate_layer
from kedge.image.layers.limits import Ledger
from kedge.image.layers.parcels import LARGEST_PARCEL, Parts, receive_parcels
from kedge.image.layers.piece_feed import FAREWELL, OWN_PLACES, PieceFeed, SharedPlaces
from kedge.system.piped_worker import PipedWorker
from kedge.system.threads import start_thread
from kedge.system.undivided import Undivided

_AT_ONCE = 8  # layers that are inflated at the same time, at most
_OPEN = 12  # layers that may wait where processes fill them; each has some memory of its own
_MANY_THREADS = 6  # from here on layers have processes, if there is memory for some
_LEAST_AHEAD = 128 << 20
_COMPRESSORS = 2  # threads of each
_LARGE_LAYER = 8 << 20  # compressed bytes from which on a process is worth its start
_OWN_PARCELS = 4


class LayersAhead:
    """Gives the feed of each layer, in the order of `layers`; close it when all is read, or nothing more is."""

    def __init__(self, layers: Iterable[LayerSource], ledger: Ledger, packing: Packing | None = None) -> None:
        options = ledger.options
        self._waiting = deque(layers)
        self._ledger = ledger
        self._packing = packing
        self._open: deque[PieceFeed] = deque()
        self._is_threaded = options.threaded
        self._has_processes = options.threaded and options.ahead >= _LEAST_AHEAD and options.threads >= _MANY_THREADS
        at_once = _count_processes(options.threads) if self._has_processes else options.threads
        self._at_once = max(1, min(_AT_ONCE, at_once)) if options.ahead else 1
        self._most_open = _OPEN if self._has_processes else self._at_once
        self._places = SharedPlaces(options.ahead // (LARGEST_PARCEL if self._has_processes else PIECE))

    @contextmanager
    def next_feed(self) -> Iterator[PieceFeed]:
        """The feed of the next layer; read it to its end, so that it makes room for another."""
        self.open_more()
        feed = self._open[0]
        yield feed  # after an error `close` ends them all
        with Undivided():
            self._open.popleft()
            self._places.feeds.remove(feed)
            feed.leave()
            feed.close()

    def open_more(self) -> None:
        """Begin with further layers, as long as there are threads for them."""
        while self._waiting and (not self._open or self._may_open()):
            layer = self._waiting.popleft()
            with Undivided():  # else nobody would end its process
                feed = self._open_feed(layer)
                self._open.append(feed)
                self._places.feeds.append(feed)

    def _may_open(self) -> bool:
        if len(self._open) >= self._most_open or not self._open[-1].is_threaded:
            return False
        return sum(not feed.is_over for feed in self._open) < self._at_once

    def _open_feed(self, layer: LayerSource) -> PieceFeed:
        if self._has_processes and layer.size >= _LARGE_LAYER:
            try:
                parcels = LayerProcess(layer, self._ledger, self._packing, _COMPRESSORS)
            except OSError:
                self._has_processes = False  # a limit, or a system that has no such memory: threads do it
            else:
                return _LayerFeed(parcels, self, threaded=True, shared=self._places, places=_OWN_PARCELS)
        pieces = inflate_layer(layer, self._ledger, verify=self._ledger.options.verify_diff_ids)
        return _LayerFeed(pieces, self, threaded=self._is_threaded, shared=self._places, places=OWN_PLACES)

    def close(self) -> None:
        """Stop all that is under way; idempotent."""
        with Undivided():
            for feed in self._open:
                feed.stop()
            deadline = time.monotonic() + FAREWELL  # for all: each may wait for a download that stands still
            while self._open:
                self._open.popleft().close(deadline - time.monotonic())


def _count_processes(threads: int) -> int:
    """How many processes keep so many processors busy; as measured, 4 for 8 and 5 for 16."""
    return max(min(threads // 2, 4), threads // 3)


class _LayerFeed(PieceFeed):
    """A feed whose reader looks, with each load it takes, whether another layer can begin."""

    def __init__(
        self,
        pieces: Iterator[bytes] | Iterator[Parts],
        ahead: LayersAhead,
        *,
        threaded: bool,
        shared: SharedPlaces,
        places: int,
    ) -> None:
        self._ahead = ahead
        super().__init__(pieces, threaded=threaded, shared=shared, places=places)

    def _take(self) -> bytes | Parts:
        self._ahead.open_more()
        return super()._take()


# A layer that a process of its own inflates and packs: our end of it.

PACK_VERB = "pack-layer"  # no user types it
_LIMITS = ("free_expansion", "maximum_ratio", "maximum_entries", "maximum_metadata", "maximum_depth")
_FAREWELL = 0.2  # seconds to wait for the thread that feeds it; it may wait for bytes that do not come


class LayerProcess:
    """Iterates over the parcels of a layer. `close` must be called; `cancel` ends it from another thread.

    OSError where there can be no more processes or threads.
    """

    def __init__(self, layer: LayerSource, ledger: Ledger, packing: Packing | None, threads: int) -> None:
        options = ledger.options
        diff_id = layer.diff_id if options.verify_diff_ids else None
        request = {
            "name": layer.name,
            "diff_id": str(diff_id or ""),
            "codec": packing.codec if packing else "",
            "block_size": packing.block_size if packing else 0,
            "threads": threads,
            "limits": {name: getattr(options, name) for name in _LIMITS},
        }
        self._layer = layer
        self._ledger = ledger
        self._problem: BaseException | None = None  # of the bytes that come to it
        self._is_closed = False
        self._worker = worker = PipedWorker(PACK_VERB, json.dumps(request))
        self._parcels = receive_parcels(worker.messages, worker.replies, worker.memory)
        self._supply = threading.Thread(target=self._feed, name="kedge-supply", daemon=True)
        self._start()

    def _start(self) -> None:
        is_started = False
        try:
            is_started = start_thread(self._supply)
        finally:
            if not is_started:
                self._end()
                if not self._supply.ident:  # else it runs, and closes the file itself
                    os.close(self._worker.input)
        if not is_started:
            raise OSError("no thread may be started")

    def __iter__(self) -> Iterator[Parts]:
        return self

    def __next__(self) -> Parts:
        try:
            parts, inflated = next(self._parcels)
        except BaseException as problem:
            # If the layer itself could not be read, what the process says, or that it says nothing, follows from that:
            # its input is closed after the problem is noted.
            if self._problem is not None:
                raise self._problem from None
            if isinstance(problem, EOFError):
                raise self._explain_death() from None
            raise
        self._ledger.charge_inflated(inflated, f"layer {self._layer.name}")
        return parts

    def _feed(self) -> None:
        """Give the process its layer; on a thread."""
        try:
            compressed = self._layer.open()
            try:
                for chunk in count_bytes(compressed, self._ledger):
                    view = memoryview(chunk)
                    while view:
                        view = view[os.write(self._worker.input, view) :]
            finally:
                close = getattr(compressed, "close", None)
                if close is not None:
                    close()
        except BrokenPipeError:
            pass  # it has ended, and said why
        except BaseException as problem:  # raised again where parcels are read
            self._problem = problem
        finally:
            os.close(self._worker.input)

    def _explain_death(self) -> LimitReached:
        return LimitReached(
            f"the process that inflated layer {self._layer.name} was killed",
            context={"layer": self._layer.name},
            hint="if it was for its memory, try again with --threads 2",
        )

    def cancel(self) -> None:
        """End the process; whoever waits for a parcel gets an error."""
        self._worker.kill()

    def close(self) -> None:
        """End the process and let go of it; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._end()
            self._supply.join(_FAREWELL)

    def _end(self) -> None:
        self._worker.kill()
        self._worker.wait()
