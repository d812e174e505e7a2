# SPDX-License-Identifier: BSD-3-Clause
"""Layers in the order in which they are read, the next ones inflated while the one in hand is read.

The tar of one layer is read after the other, because a higher layer decides what of a lower one shows. Inflating knows
no such order, so threads do it side by side, as far as the memory reaches that `FlattenOptions.ahead` gives. With many
threads they go on beyond it: they inflate the rest of a gzip layer, verify it and drop the bytes, but keep the state of
the engine every few megabytes; when the layer's turn comes, these segments are inflated again, all at once.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kedge.formats.compression import GzipSegment, SegmentScan
from kedge.layers.layer_source import MANY_THREADS, LayerSource, choose_piece, inflate_layer
from kedge.layers.limits import Ledger
from kedge.layers.piece_feed import FAREWELL, PieceFeed, SharedPlaces, count_places
from kedge.layers.segment_feed import SegmentSource, read_segments

_AT_ONCE = 8  # layers that are inflated at the same time, at most
_SEGMENTS_AT_ONCE = 12


class _LayerFeed(PieceFeed):
    """The pieces of one layer: what waited in memory, then its segments, then what is inflated while it is read."""

    def __init__(self, layer: LayerSource, ledger: Ledger, shared: SharedPlaces, *, threaded: bool) -> None:
        options = ledger.options
        self.is_in_hand = False
        self._places_ahead = shared
        self._scan: SegmentScan | None = None
        if layer.open_at is not None and threaded and options.ahead and options.threads >= MANY_THREADS:
            segments: queue.SimpleQueue[GzipSegment | None] = queue.SimpleQueue()
            at_once = min(options.threads * 3 // 4, _SEGMENTS_AT_ONCE)
            self._source = SegmentSource(segments, layer.open_at, f"layer {layer.name}", choose_piece(options), at_once)
            self._scan = SegmentScan(self._is_scan_wanted, self._begin_scan, segments.put)
        pieces = inflate_layer(layer, ledger, verify=options.verify_diff_ids, scan=self._scan)
        super().__init__(pieces, threaded=threaded, shared=shared, places=count_places(choose_piece(options)))

    def _is_scan_wanted(self) -> bool:
        if self.is_in_hand or self._scan is None:
            return False
        return self._scan.is_scanning or self._places_ahead.is_used_up

    def _begin_scan(self) -> None:
        self.insert(read_segments(self._source))


class LayersAhead:
    """Gives the feed of each layer, in the order of `layers`; close it when all is read, or nothing more is."""

    def __init__(self, layers: Iterable[LayerSource], ledger: Ledger) -> None:
        options = ledger.options
        self._waiting = deque(layers)
        self._ledger = ledger
        self._places = SharedPlaces(options.ahead // choose_piece(options))
        self._open: deque[_LayerFeed] = deque()
        self._at_once = max(1, min(_AT_ONCE, options.threads)) if options.ahead else 1
        self._is_threaded = options.threaded

    @contextmanager
    def next_feed(self) -> Iterator[PieceFeed]:
        """The feed of the next layer; read it to its end, so that it makes room for another."""
        self._open_more()
        feed = self._open[0]
        feed.is_in_hand = True
        yield feed  # after an error `close` ends them all
        self._open.popleft()
        self._places.feeds.remove(feed)
        feed.leave()
        feed.close()

    def _open_more(self) -> None:
        while self._waiting and (not self._open or (len(self._open) < self._at_once and self._open[-1].is_threaded)):
            layer = self._waiting.popleft()
            feed = _LayerFeed(layer, self._ledger, self._places, threaded=self._is_threaded)
            self._open.append(feed)
            self._places.feeds.append(feed)

    def close(self) -> None:
        """Stop all that is under way; idempotent."""
        for feed in self._open:
            feed.stop()
        deadline = time.monotonic() + FAREWELL  # for all: each may wait for a download that stands still
        while self._open:
            self._open.popleft().close(deadline - time.monotonic())
