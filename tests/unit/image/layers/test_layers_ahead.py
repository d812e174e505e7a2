# SPDX-License-Identifier: BSD-3-Clause
"""Layers are inflated ahead, side by side, and bounded; what is read does not depend on how many threads do it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from kedge.base.frozen import replace
from kedge.errors import DigestMismatch
from kedge.image.layers.flatten import flatten
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.layers_ahead import LayersAhead
from kedge.image.layers.limits import FlattenOptions, Ledger
from kedge.image.layers.piece_feed import FAREWELL, OWN_PLACES, PieceFeed, SharedPlaces
from tests.builders.layers import MemorySink, file, layer, sources
from tests.builders.waiting import wait_until

_PIECE = 1 << 19


def make_layers(count: int) -> list[LayerSource]:
    tars = [
        layer(file("shared", b"%d" % number * 90_000), *(file(f"{number}/{x}", b"%d" % x * 70_000) for x in range(40)))
        for number in range(count)
    ]
    return sources(*tars, compressed=True)


class _Endless:
    """A layer that counts the pieces taken from it."""

    def __init__(self) -> None:
        self.taken = 0

    def open(self) -> Iterator[bytes]:
        while True:
            self.taken += 1
            yield bytes(_PIECE)


@pytest.mark.timeout(60)
def test_pieces_that_wait_are_bounded_whatever_the_layers_hold() -> None:
    layers = [_Endless() for _ in range(12)]
    shared = 20
    options = FlattenOptions(threads=3, ahead=shared * _PIECE)
    given = [LayerSource(str(number), None, None, source.open) for number, source in enumerate(layers)]
    with closing(LayersAhead(given, Ledger(options))) as ahead:
        feed = ahead.next_feed().__enter__()  # the block is left as after an error: nothing is read to its end
        next(feed)
        wait_until("all places are taken", lambda: sum(x.taken for x in layers) >= 3 * OWN_PLACES + shared + 3)
    assert [source.taken for source in layers[3:]] == [0] * 9
    assert sum(source.taken for source in layers) <= 3 * (OWN_PLACES + 2) + shared + 1


@pytest.mark.timeout(60)
def test_small_layers_do_not_wait_all_at_once() -> None:
    """Each layer that is open may have some memory of its own, so few are, even where they are over at once."""
    opened: list[int] = []

    def open_layer(number: int) -> Iterator[bytes]:
        opened.append(number)
        return iter([bytes(_PIECE)] * 8)

    given = [LayerSource(str(number), None, None, partial(open_layer, number)) for number in range(12)]
    with closing(LayersAhead(given, Ledger(FlattenOptions(threads=3, ahead=4 * _PIECE)))) as ahead:
        feed = ahead.next_feed().__enter__()
        for _ in range(8):
            next(feed)
            wait_until("the first layers were opened", lambda: len(opened) >= 3)
            time.sleep(0.01)
    assert sorted(opened) == [0, 1, 2]


@pytest.mark.timeout(60)
def test_a_slow_layer_in_hand_is_not_starved_by_those_behind_it() -> None:
    """The second layer takes every shared place there is; the first goes on with its own."""
    places = SharedPlaces(4)
    gate = threading.Semaphore(0)

    def make_slowly() -> Iterator[bytes]:
        for _ in range(10 * OWN_PLACES):
            gate.acquire()
            yield b"slow"

    with (
        closing(PieceFeed(make_slowly(), threaded=True, shared=places)) as first,
        closing(PieceFeed(iter([b"x"] * 1000), threaded=True, shared=places)) as second,
    ):
        places.feeds += [first, second]
        wait_until("the second layer took all it can have", lambda: second.is_waiting)
        for _ in range(10 * OWN_PLACES):
            gate.release()
            assert next(first) == b"slow"
        assert list(first) == []
        first.leave()
        places.feeds.remove(first)
        assert len(list(second)) == 1000
        second.leave()
    assert [places.take() for _ in range(5)] == [True] * 4 + [False]


@pytest.mark.timeout(60)
def test_an_error_ahead_is_raised_when_its_layer_is_read() -> None:
    layers = make_layers(3)
    layers[0] = replace(layers[0], diff_id=layers[1].diff_id)
    sink = MemorySink()
    with pytest.raises(DigestMismatch, match="layer layer0"):
        flatten(layers, sink, FlattenOptions(threads=4, ahead=64 << 20))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kedge-")]


@pytest.mark.timeout(60)
def test_layers_that_wait_for_a_download_do_not_hold_up_an_error() -> None:
    """All of them together are waited for as long as one."""
    gate = threading.Event()

    def stand_still() -> Iterator[bytes]:
        gate.wait()
        yield b""

    layers = [LayerSource(str(number), None, None, stand_still) for number in range(8)]
    ahead = LayersAhead(layers, Ledger(FlattenOptions(threads=16, ahead=1 << 20)))
    ahead.next_feed().__enter__()
    before = time.monotonic()
    ahead.close()
    assert time.monotonic() - before < 4 * FAREWELL
    gate.set()
    wait_until("the threads ended", lambda: not [x for x in threading.enumerate() if x.name == "kedge-inflate"])
