# SPDX-License-Identifier: BSD-3-Clause
"""A signal's handler raises in the thread that reads or writes an image, at any moment: its end waits for nobody.

The handler may raise while a lock of Python's own queues and conditions is held, which then nobody lets go of.
"""

from __future__ import annotations

import gzip
import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from kedge.image.formats.compression.blocks import open_codec
from kedge.image.formats.squashfs import compress_pipeline
from kedge.image.formats.squashfs.compress_pipeline import BlockPipeline
from kedge.image.formats.squashfs.image_output import OutputFile
from kedge.image.layers import layers_ahead
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.layers_ahead import LayersAhead
from kedge.image.layers.limits import FlattenOptions, Ledger
from kedge.image.layers.piece_feed import PieceFeed
from kedge.system import undivided
from tests.builders.own_children import list_children
from tests.builders.waiting import wait_until

_TIMES = 150  # a queue with a lock is stuck after some 100
_BLOCK = 4096
_BLOB = gzip.compress(random.Random(16).randbytes(3 << 20), 1)


class _AskedToEnd(BaseException):
    pass


@contextmanager
def raised_soon(choose: random.Random) -> Iterator[None]:
    """A signal within some milliseconds, by a timer that no other test has; it waits for `Undivided`, as ours do."""

    def handle(number: int, frame: object) -> None:
        if undivided.steps:
            signal.setitimer(signal.ITIMER_PROF, 0.0002)
            return
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


def read_layers_of_processes() -> None:
    layers = [LayerSource(str(number), None, None, lambda: iter([_BLOB]), len(_BLOB)) for number in range(2)]
    with closing(LayersAhead(layers, Ledger(FlattenOptions(threads=8, ahead=1 << 30)))) as ahead:
        for _ in layers:
            with ahead.next_feed() as feed:
                feed.drain()


def write_blocks(pipelines: list[BlockPipeline]) -> None:
    with tempfile.TemporaryFile() as file:
        pipeline = BlockPipeline(OutputFile(file), open_codec("zstd:1"), _BLOCK, 2, start=0)
        pipelines.append(pipeline)
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
def test_a_thread_that_reads_ends_whenever_a_signal_comes() -> None:
    choose = random.Random(15)
    for _ in range(_TIMES):
        with suppress(_AskedToEnd), raised_soon(choose):
            read_pieces()


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_threads_that_write_end_whenever_a_signal_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compress_pipeline, "_BATCH_SIZE", 2 * _BLOCK)  # so that the threads meet often
    choose = random.Random(15)
    pipelines: list[BlockPipeline] = []
    for _ in range(_TIMES):
        with suppress(_AskedToEnd), raised_soon(choose):
            write_blocks(pipelines)
        while pipelines:
            pipelines.pop().stop()  # once more: the signal may have cut its first end short
    assert not [thread for thread in threading.enumerate() if thread.name == "kedge-compress"]


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("times", [12, pytest.param(60, marks=pytest.mark.long)])
def test_processes_of_layers_end_whenever_a_signal_comes(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(layers_ahead, "_LARGE_LAYER", 0)
    choose, before = random.Random(16), {*list_children()}
    for _ in range(times):
        with suppress(_AskedToEnd), raised_soon(choose):
            read_layers_of_processes()
    wait_until("all of them are gone", lambda: {*list_children()} <= before)
