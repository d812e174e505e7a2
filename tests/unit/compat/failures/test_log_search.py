# SPDX-License-Identifier: BSD-3-Clause
"""Searching endless logs: bounded memory, right line numbers, no time lost on lines without a mark."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator

from kedge.compat.failures.find_clues import search_pieces

SAID = b"RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
STEP = b"step 1234 loss 0.123456 accuracy 0.98 lr 0.001 time 12.3 ms/it\n"


def test_search_of_much_text_is_bounded_and_fast() -> None:
    block = STEP * (1 << 14)  # a megabyte

    def give() -> Iterator[bytes]:
        for _ in range(48):
            yield block
        yield SAID
        yield block

    tracemalloc.start()
    begin = time.process_time()
    [clue] = search_pieces(give())
    seconds = time.process_time() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert clue.number == 48 * (1 << 14) + 1
    assert peak < 32 << 20
    assert seconds < 20


def test_search_of_a_log_where_every_line_has_a_mark() -> None:
    noise = b"".join(b"validation error %d.%06d in epoch %d\n" % (n % 7, n, n) for n in range(60_000))
    begin = time.process_time()
    [clue] = search_pieces([noise, SAID])
    assert clue.number == 60_001
    assert time.process_time() - begin < 20


def test_search_of_one_endless_line() -> None:
    bar = b"\r 10%|####      | 100/1000 [00:10<01:40, 9.99it/s]"
    pieces = [bar * 1000] * 100
    [clue] = search_pieces([*pieces, b"\r" + SAID, *pieces])
    assert (clue.number, clue.line[:12]) == (1, "RuntimeError")


def test_search_of_random_bytes() -> None:
    data = random.Random(7).randbytes(1 << 21)
    assert search_pieces([data]) == ()
    [clue] = search_pieces([data, b"\n", SAID, data])
    assert clue.number == data.count(b"\n") + 2


def test_search_finds_what_is_split_between_pieces() -> None:
    text = STEP * 100 + SAID + STEP * 100
    for size in (1, 7, 100, 8191, 8192):
        pieces = [text[place : place + size] for place in range(0, len(text), size)]
        assert [clue.number for clue in search_pieces(pieces)] == [101]
        assert [clue.count for clue in search_pieces(pieces)] == [1]


def test_search_is_not_slowed_by_hostile_lines() -> None:
    begins = (b"error ", b"image ", b"mount /a->", b"x: ", b"a.sif ", b"PMIX ERROR: ", b"kedge: a\n  ", b"UCX  ERROR ")
    for begin in begins:
        before = time.process_time()
        search_pieces([b"fail " + begin * 8000])
        assert time.process_time() - before < 10, begin
