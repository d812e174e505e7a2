# SPDX-License-Identifier: BSD-3-Clause
"""Layers in the order in which they are read, the next ones inflated while the one in hand is read.

The tar of one layer is read after the other, because a higher layer decides what of a lower one shows. Inflating knows
no such order, so threads do it side by side, as far as the memory reaches that `FlattenOptions.ahead` gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kedge.layers.layer_source import LayerSource, choose_piece, inflate_layer
from kedge.layers.limits import Ledger
from kedge.layers.piece_feed import PieceFeed, SharedPlaces

_AT_ONCE = 8  # layers that are inflated at the same time, at most


class LayersAhead:
    """Gives the feed of each layer, in the order of `layers`; close it when all is read, or nothing more is."""

    def __init__(self, layers: Iterable[LayerSource], ledger: Ledger) -> None:
        options = ledger.options
        self._waiting = deque(layers)
        self._ledger = ledger
        self._places = SharedPlaces(options.ahead // choose_piece(options))
        self._open: deque[PieceFeed] = deque()
        self._at_once = max(1, min(_AT_ONCE, options.threads)) if options.ahead else 1
        self._is_threaded = options.threaded

    @contextmanager
    def next_feed(self) -> Iterator[PieceFeed]:
        """The feed of the next layer; read it to its end, so that it makes room for another."""
        self._open_more()
        feed = self._open[0]
        yield feed  # after an error `close` ends them all
        self._open.popleft()
        self._places.feeds.remove(feed)
        feed.leave()
        feed.close()

    def _open_more(self) -> None:
        while self._waiting and (not self._open or (len(self._open) < self._at_once and self._open[-1].is_threaded)):
            layer = self._waiting.popleft()
            pieces = inflate_layer(layer, self._ledger, verify=self._ledger.options.verify_diff_ids)
            feed = PieceFeed(pieces, threaded=self._is_threaded, shared=self._places)
            self._open.append(feed)
            self._places.feeds.append(feed)

    def close(self) -> None:
        """Stop all that is under way; idempotent."""
        for feed in self._open:
            feed.stop()
        while self._open:
            self._open.popleft().close()
