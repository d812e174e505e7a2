# SPDX-License-Identifier: BSD-3-Clause
"""A signal's handler raises in the thread that reads or writes an image, at any moment: its end waits for nobody.

The handler may raise while a lock of Python's own queues and conditions is held, which then nobody lets go of.
"""

from __future__ import annotations

import gzip
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import pytest

from kedge.formats.compression import gzip_segments, open_codec
from kedge.formats.squashfs import compress_pipeline
from kedge.formats.squashfs.compress_pipeline import BlockPipeline
from kedge.formats.squashfs.image_output import OutputFile
from kedge.layers.layer_source import LayerSource
from kedge.layers.layers_ahead import LayersAhead
from kedge.layers.limits import FlattenOptions, Ledger
from kedge.layers.piece_feed import PieceFeed

_TIMES = 150  # a queue with a lock is stuck after some 100
_BLOCK = 4096
_BLOB = gzip.compress(random.Random(16).randbytes(3 << 20), 1)


class _AskedToEnd(BaseException):
    pass


@contextmanager
def raised_soon(choose: random.Random) -> Iterator[None]:
    """A signal within some milliseconds, by a timer that no other test has."""

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        raise _AskedToEnd

    before = signal.signal(signal.SIGPROF, handle)
    try:
        signal.setitimer(signal.ITIMER_PROF, choose.uniform(0.0002, 0.006))
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def read_pieces() -> None:
    def make() -> Iterator[bytes]:
        while True:
            yield b"x"

    with closing(PieceFeed(make(), threaded=True)) as feed:
        feed.drain()


def read_segments_of_layers() -> None:
    """With no memory for layers ahead, so that all but the first are read in segments."""
    blob = _BLOB

    def open_at(start: int) -> Iterator[bytes]:
        yield blob[start:]

    layers = [LayerSource("x", None, None, partial(open_at, 0), open_at) for _ in range(4)]
    with closing(LayersAhead(layers, Ledger(FlattenOptions(threads=8, ahead=1)))) as ahead:
        for _ in layers:
            with ahead.next_feed() as feed:
                feed.drain()


def write_blocks() -> None:
    with tempfile.TemporaryFile() as file:
        pipeline = BlockPipeline(OutputFile(file), open_codec("zstd:1"), _BLOCK, 2, start=0)
        try:
            while pipeline.next_number < 2000:
                pipeline.slot()[:] = bytes(_BLOCK)
                pipeline.read_block(pipeline.close_block(_BLOCK) // 2)
            pipeline.finish()
        finally:
            pipeline.stop()


@pytest.mark.timeout(60)
# a handler that raises while Python forgets an ended thread is not heard, and nothing waits for it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("work", [read_pieces, read_segments_of_layers, write_blocks])
def test_threads_end_whenever_a_signal_comes(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    monkeypatch.setattr(gzip_segments, "_LENGTH", 100_000)
    monkeypatch.setattr(gzip_segments, "_FIRST_MEMBER", 50_000)
    monkeypatch.setattr(compress_pipeline, "_BATCH_SIZE", 2 * _BLOCK)  # so that the threads meet often
    choose = random.Random(15)
    for _ in range(_TIMES):
        with suppress(_AskedToEnd), raised_soon(choose):
            work()
