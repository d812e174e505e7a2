# SPDX-License-Identifier: BSD-3-Clause
"""Layers that processes inflate and pack: the image has the same bytes, errors are the same, and nothing is left."""

from __future__ import annotations

import functools
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kedge.base.frozen import replace
from kedge.base.packed_blocks import PackedBlocks, Packing
from kedge.base.tree import walk
from kedge.errors import CorruptImage, DigestMismatch, FileProblem, HostileImage, LimitReached
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from kedge.image.layers import layers_ahead
from kedge.image.layers.flatten import flatten
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.layers_ahead import LayerProcess
from kedge.image.layers.limits import FlattenOptions, Ledger
from kedge.image.layers.parcels import _SLOT, Parcel, ParcelSender
from kedge.system import piped_worker
from kedge.system.libc import create_memory
from tests.builders.layers import MemorySink, compress, file, hard_link, layer, pax, sources, whiteout
from tests.builders.own_children import list_children
from tests.builders.rows import each_row
from tests.builders.waiting import wait_until

_BLOCK = 131072
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def small_layers_have_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(layers_ahead, "_LARGE_LAYER", 1)
    before = list_running()
    yield
    wait_until("threads and processes are gone", lambda: list_running() <= before)


def list_running() -> set[str]:
    return {*list_children()} | {thread.name for thread in threading.enumerate() if thread.name.startswith("kedge-")}


def count_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def options(**changes: Any) -> FlattenOptions:
    return FlattenOptions(**{"threads": 8, "ahead": 1 << 30, **changes})


def sized(layers: list[LayerSource]) -> list[LayerSource]:
    return [replace(each, size=1 << 20) for each in layers]


@functools.cache
def make_tars() -> list[bytes]:
    """Large files, small ones, equal ones, holes, hidden ones, links to hidden ones, and lengths around a block."""
    choose = random.Random(16)
    text = bytes(choose.choices(b"abcdefgh", k=5 * _BLOCK + 77))
    noise = choose.randbytes(3 * _BLOCK)
    lengths = [file(f"lengths/{n}", text[: n * 1000]) for n in (1, 131, 132, 262, 263)]
    exact = [file(f"exact/{n}", text[:n]) for n in (_BLOCK - 1, _BLOCK, _BLOCK + 1, 2 * _BLOCK)]
    sparse = {b"GNU.sparse.map": b"%d,%d" % (_BLOCK, _BLOCK), b"GNU.sparse.size": b"%d" % (9 * _BLOCK)}
    lowest = layer(
        file("large", text), file("hidden", noise), file("same", noise), file("small", b"x" * 99), *lengths, *exact,
        file("hole", bytes(4 * _BLOCK)), file("half", bytes(2 * _BLOCK) + text[:_BLOCK]),
        file("tail", text[:_BLOCK] + bytes(7)),
        file("long/" + "n" * 200, noise + b"1"), pax(sparse) + file("sparse", text[:_BLOCK]),
    )  # fmt: skip
    middle = layer(
        file("replaced", text[:-1]), file("again", noise), file("nearly", noise[:-1] + b"!"), whiteout("same")
    )
    top = layer(hard_link("kept", "hidden"), whiteout("hidden"), file("replaced", b"short"), file("last", text))
    many = [file(f"many/{n}", choose.randbytes(choose.choice((10, 900, 140_000)))) for n in range(60)]
    return [lowest, middle, layer(*many), top]


@functools.cache
def write_plainly(codec: str = "zstd") -> bytes:
    """The image of these tars without processes; they are packed the same, however they came."""
    return write_image(sources(*make_tars(), compressed=True), FlattenOptions(threads=1), codec)


def write_image(layers: list[LayerSource], given: FlattenOptions, codec: str = "zstd") -> bytes:
    with tempfile.TemporaryFile() as image:
        with SquashWriter(image, SquashOptions(codec=codec, threads=given.threads, mtime=0)) as writer:
            writer.finish(flatten(layers, writer, given))
        image.seek(0)
        return image.read()


def test_layers_of_zstd_and_of_no_compression_are_packed_too() -> None:
    tars, expected = make_tars(), write_plainly()
    assert write_image(sized(sources(*tars)), options()) == expected
    packed = [zstandard.compress(tar) for tar in tars]
    layers = [
        replace(each, open=lambda blob=blob: iter([blob])) for each, blob in zip(sources(*tars), packed, strict=True)
    ]
    assert write_image(sized(layers), options()) == expected


def test_a_sink_that_wants_no_blocks_gets_the_bytes() -> None:
    layers = sources(*make_tars(), compressed=True)
    expected, found = MemorySink(), MemorySink()
    flatten(layers, expected)
    root = flatten(sized(layers), found, options())
    assert found.stored == expected.stored
    assert b"large" in dict(walk(root))


def test_more_than_one_parcel_waits_only_as_far_as_memory_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are the same where every layer has to wait for a place."""
    monkeypatch.setattr(layers_ahead, "_LEAST_AHEAD", 0)
    choose = random.Random(17)
    tars = [layer(*(file(f"{x}/{y}", choose.randbytes(300_000)) for y in range(80))) for x in range(4)]
    layers = sources(*tars, compressed=True)
    expected = write_image(layers, FlattenOptions(threads=1))
    assert write_image(sized(layers), options(threads=12, ahead=1)) == expected


@each_row(
    ("spoil", "problem", "said"),
    [
        (lambda blob: blob[:-5000], CorruptImage, "layer layer1: the gzip data ends too early"),
        (lambda blob: blob[: len(blob) // 2] + bytes(40) + blob[len(blob) // 2 + 40 :], CorruptImage, "layer layer1"),
        (lambda blob: blob + b"more", CorruptImage, "layer layer1"),
        (lambda _: compress(layer(file("other", b"1"))), DigestMismatch, "layer layer1 does not match the image"),
        (lambda _: compress(layer(file("cut", b"1" * 500_000))[:300_000]), CorruptImage, "too early"),
        (lambda _: compress(b"no tar" * 1000), CorruptImage, "checksum of a header"),
    ],
)  # fmt: skip
def test_spoilt_layers_are_refused_with_the_words_of_any_other(
    spoil: object, problem: type[Exception], said: str
) -> None:
    tars = make_tars()
    blob = spoil(compress(tars[1]))  # type: ignore[operator]
    layers = sources(*tars, compressed=True)
    diff_id = layers[1].diff_id if problem is DigestMismatch else None
    layers[1] = replace(layers[1], open=lambda: iter([blob]), diff_id=diff_id)
    texts = []
    for given, source in ((FlattenOptions(threads=1), layers), (options(), sized(layers))):
        with pytest.raises(problem, match=said) as caught:
            write_image(source, given)
        texts.append((str(caught.value), caught.value.context, caught.value.hint))  # type: ignore[attr-defined]
    assert texts[0] == texts[1]


def test_what_goes_wrong_while_a_layer_is_read_comes_before_what_follows_from_it() -> None:
    layers = sized(sources(*make_tars(), compressed=True))

    def read() -> Iterator[bytes]:
        yield next(sources(*make_tars(), compressed=True)[2].open())
        raise FileProblem("the disk broke")

    layers[2] = replace(layers[2], open=read)
    with pytest.raises(FileProblem, match="the disk broke"):
        write_image(layers, options())


def test_limits_are_those_of_the_image_and_not_of_each_layer() -> None:
    tars = [layer(file(f"{number}", bytes(1 << 20))) for number in range(4)]
    layers = sized(sources(*tars, compressed=True))
    flatten(layers, MemorySink(), options(free_expansion=5 << 20, maximum_ratio=1))
    with pytest.raises(HostileImage, match="expand to"):
        flatten(layers, MemorySink(), options(free_expansion=3 << 20, maximum_ratio=1))
    with pytest.raises(HostileImage, match="more than 3 entries"):
        flatten(layers, MemorySink(), options(maximum_entries=3))


def test_a_process_that_is_killed_is_told_as_such() -> None:
    gate = threading.Event()

    def read() -> Iterator[bytes]:
        yield compress(make_tars()[0])[:1000]
        gate.wait()

    process = LayerProcess(LayerSource("x", None, None, read), Ledger(options()), None, 1)
    os.kill(process._worker._pid, signal.SIGKILL)
    with pytest.raises(LimitReached, match="layer x was killed"):
        next(process)
    gate.set()
    process.close()
    process.close()


def test_the_kernel_may_bury_the_processes_itself() -> None:
    """Where SIGCHLD is ignored, as some daemons leave it to what they start, nobody can wait for them."""
    layers, expected = sources(*make_tars(), compressed=True), write_plainly()
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert write_image(sized(layers), options()) == expected
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_layers_that_wait_for_a_download_do_not_hold_up_the_end() -> None:
    gate = threading.Event()

    def stand_still() -> Iterator[bytes]:
        gate.wait()
        yield b""

    layers = [LayerSource(str(number), None, None, stand_still, 1 << 30) for number in range(3)]
    ahead = layers_ahead.LayersAhead(layers, Ledger(options()))
    ahead.next_feed().__enter__()
    before = time.monotonic()
    ahead.close()
    assert time.monotonic() - before < 3
    gate.set()


@pytest.mark.parametrize("what", ["memfd_create", "posix_spawn"])
def test_threads_do_it_where_processes_cannot_be_had(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(11, "no more")

    layers, expected = sources(*make_tars(), compressed=True), write_plainly()
    monkeypatch.setattr(piped_worker.os, what, refuse)
    before = count_files()
    assert write_image(sized(layers), options()) == expected
    assert count_files() == before


def test_layers_are_read_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    layers = sources(*make_tars(), compressed=True)
    expected = [path for path, _ in walk(flatten(layers, MemorySink()))]
    before = count_files()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert [path for path, _ in walk(flatten(sized(layers), MemorySink(), options()))] == expected
    assert count_files() == before


def test_blocks_come_packed_and_all_else_as_it_is() -> None:
    noise = random.Random(18).randbytes(3 * _BLOCK + 5)
    tar = layer(file("small", b"abc"), file("large", noise), file("zeros", bytes(2 * _BLOCK)))
    source = sources(tar, compressed=True)[0]
    process = LayerProcess(source, Ledger(options()), Packing("zstd", _BLOCK), 2)
    parts = [part for parcel in process for part in parcel]
    process.close()
    packed = [part for part in parts if isinstance(part, PackedBlocks)]
    assert [(len(part), len(part.words)) for part in packed] == [(3 * _BLOCK + 5, 4), (2 * _BLOCK, 2)]
    assert list(packed[1].words) == [0, 0]
    assert sum(map(len, parts)) == len(tar)
    assert sum(len(part) for part in parts if isinstance(part, bytes)) < 20_000


def test_a_parcel_that_has_no_room_in_its_slot_is_not_sent() -> None:
    """It would be written over the next one, and the image be a wrong one."""
    reading, writing = os.pipe()
    memory = create_memory("test")
    try:
        sender = ParcelSender(writing, reading, memory)
        full, larger = Parcel(), Parcel()
        full.add_bytes(bytes(_SLOT - 8))
        larger.add_bytes(bytes(_SLOT - 7))
        sender.send(full, 0)
        with pytest.raises(ValueError, match="has no room in a slot"):
            sender.send(larger, 0)
    finally:
        for each in (reading, writing, memory):
            os.close(each)
