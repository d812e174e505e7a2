# SPDX-License-Identifier: BSD-3-Clause
"""What a log says becomes clues: causes before consequences, the rank that failed first before others, no secrets."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator

from kedge.compat.failures.catalogue import CONSEQUENCE, GENERAL, NOTE
from kedge.compat.failures.find_clues import explain_failure, find_clues, remove_colours, search_pieces, split_label
from tests.builders.rows import each_row
from tests.wording import assert_reads

FORWARD = "RuntimeError: Unexpected error. Error 804: forward compatibility was attempted on non supported HW"
ARCHITECTURES = (
    "GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n"
    "The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70.\n"
)
NO_DEVICE = "RuntimeError: cuda runtime error (100) : no CUDA-capable device is detected"
MODES = "WARNING: CUDA Minor Version Compatibility mode ENABLED.\nNOTE: CUDA Forward Compatibility mode ENABLED.\n"


def test_clues_have_what_the_message_says_and_where() -> None:
    [clue] = find_clues(ARCHITECTURES)
    assert_reads(clue.cause, "diagnose/image-no-kernels-gpu-compute-capability", "8.6")
    [clue] = find_clues(ARCHITECTURES.partition("\n")[0])
    assert clue.cause.endswith("it has others only")
    [clue] = find_clues("one\ntwo\n" + FORWARD + "\nfour\n")
    assert (clue.number, clue.place) == (3, "line 3")
    first = find_clues("\n".join((NO_DEVICE, ARCHITECTURES, FORWARD)))[0]
    assert first.name == "forward-804"


def test_clues_of_modes_that_work_are_notes() -> None:
    assert find_clues(MODES) == ()
    assert [clue.level for clue in find_clues(MODES, notes=True)] == [NOTE, NOTE]
    assert not any(clue.is_failure for clue in find_clues(MODES, notes=True))
    assert find_clues("all is well\n") == ()
    assert find_clues("rank 0 of 1\n") == ()
    assert [clue.name for clue in find_clues("rank 0 of 1\nrank 0 of 1\n")] == ["singletons"]
    assert [clue.name for clue in find_clues("0: rank 0/1\n1: rank 0/1\n")] == ["singletons"]


def test_clues_of_ranks_begin_with_the_one_that_failed() -> None:
    text = (
        "0: RuntimeError: CUDA out of memory. Tried to allocate\n"
        "1: FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n"
        "srun: error: gpu01: task 1: Exited with exit code 1\n"
    )
    clues = find_clues(text)
    assert [clue.name for clue in clues] == ["no-such-file", "gpu-memory", "rank-exited"]
    assert (clues[0].rank, clues[0].line[:5]) == ("1", "FileN")
    assert clues[2].level == CONSEQUENCE
    text = (
        "[1,0]<stderr>:RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1\n"
        "[1,2]<stderr>:RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:2\n"
        "[1,1]<stderr>:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    first, second = find_clues(text)
    assert (first.name, first.rank) == ("gpu-memory", "1")
    assert (second.name, second.count, second.ranks) == ("peer-gone", 2, 2)
    text = (
        '0: The application appears to have been direct launched using "srun",\n'
        '1: The application appears to have been direct launched using "srun",\n'
        "0: but OMPI was not built with SLURM's PMI support and therefore cannot\n"
        "1: but OMPI was not built with SLURM's PMI support and therefore cannot\n"
    )
    clue = explain_failure(text)
    assert (clue.name, clue.ranks) == ("no-slurm-pmi", 2)


def test_clues_of_exceptions() -> None:
    text = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nmine.OddError: too odd\n'
    [clue] = find_clues(text)
    assert (clue.name, clue.level, clue.number) == ("python-exception", GENERAL, 3)
    assert "ended with mine.OddError" in clue.cause
    assert find_clues("WARNING: caught mine.OddError: too odd\n") == ()
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n"
    assert [clue.name for clue in find_clues(text)] == ["no-module"]
    text = (
        "job.sh: line 2: module: command not found\n"
        'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nmine.OddError: too odd\n'
    )
    assert [clue.name for clue in find_clues(text)] == ["python-exception", "command-not-found"]
    assert [clue.name for clue in find_clues(text.partition("\n")[0])] == ["command-not-found"]


def test_clues_repeat_no_secrets_and_are_bounded() -> None:
    line = "FileNotFoundError: [Errno 2] No such file or directory: '/d' NGC_API_KEY=abcdef123456 nvapi-abcdefghijkl"
    [clue] = find_clues(line)
    assert "abcdef" not in clue.line
    assert "***" in clue.line
    [clue] = find_clues("x" * 300_000 + " CUDA failure 804 \x1b[31m" + "y" * 300_000)
    assert clue.line == "CUDA failure 804"
    assert find_clues("supports CUDA capabilities " + "sm_90 " * 50_000) == ()


@each_row("noise", ["\x1b[31m{}\x1b[0m", "epoch 1: 10%|#  |\r{}\r", "{}\r\n", "\x00\xff{}"])
def test_clues_in_colours_progress_bars_and_junk(noise: str) -> None:
    [clue] = find_clues("begin\n" + noise.format(FORWARD) + "\n")
    assert FORWARD in clue.line
    assert clue.number == 2


@each_row(("line", "rank", "text"), [
    ("0: hello", "0", "hello"), (" 12: hello", "12", "hello"), ("[1,3]<stderr>:hello", "3", "hello"),
    ("[1,0]<stdout>: hello", "0", "hello"), ("[prterun-gpu01-123@1,2]<stderr>: hello", "2", "hello"),
    ("[5] hello", "5", "hello"), ("[rank7]: hello", "7", "hello"), ("[rank: 3] Seed set to 1", "3", "Seed set to 1"),
    ("[default1]:hello", "1", "hello"), ("3: [rank7]: hello", "3", "hello"), ("hello", "", "hello"),
    ("12:30:01 hello", "", "12:30:01 hello"), ("[vm:123] *** error", "", "[vm:123] *** error"), ("[0]:", "", "[0]:"),
    ("", "", ""),
])  # fmt: skip
def test_label_is_split_off(line: str, rank: str, text: str) -> None:
    assert split_label(line) == (rank, text)


def test_colours_are_removed() -> None:
    assert remove_colours("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b[K") == "red x"
    assert remove_colours("plain [31m") == "plain [31m"


SAID = b"RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
STEP = b"step 1234 loss 0.123456 accuracy 0.98 lr 0.001 time 12.3 ms/it\n"


def test_search_of_much_text_is_bounded_and_fast() -> None:
    block = STEP * (1 << 14)  # a megabyte

    def give() -> Iterator[bytes]:
        for _ in range(16):
            yield block
        yield SAID
        yield block

    tracemalloc.start()
    begin = time.process_time()
    [clue] = search_pieces(give())
    seconds = time.process_time() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert clue.number == 16 * (1 << 14) + 1
    assert peak < 12 << 20
    assert seconds < 20


def test_search_of_odd_logs() -> None:
    bar = b"\r 10%|####      | 100/1000 [00:10<01:40, 9.99it/s]"
    pieces = [bar * 1000] * 100
    [clue] = search_pieces([*pieces, b"\r" + SAID, *pieces])
    assert (clue.number, clue.line[:12]) == (1, "RuntimeError")
    data = random.Random(7).randbytes(1 << 21)
    assert search_pieces([data]) == ()
    [clue] = search_pieces([data, b"\n", SAID, data])
    assert clue.number == data.count(b"\n") + 2
    text = STEP * 100 + SAID + STEP * 100
    for size in (1, 7, 100, 8191, 8192):
        pieces = [text[place : place + size] for place in range(0, len(text), size)]
        assert [clue.number for clue in search_pieces(pieces)] == [101]
        assert [clue.count for clue in search_pieces(pieces)] == [1]
    noise = b"".join(b"validation error %d.%06d in epoch %d\n" % (n % 7, n, n) for n in range(15_000))
    begin = time.process_time()
    [clue] = search_pieces([noise, SAID])
    assert clue.number == 15_001
    assert time.process_time() - begin < 20
    begins = (b"error ", b"image ", b"mount /a->", b"x: ", b"a.sif ", b"PMIX ERROR: ", b"kedge: a\n  ", b"UCX  ERROR ")
    for begin in begins:
        before = time.process_time()
        search_pieces([b"fail " + begin * 8000])
        assert time.process_time() - before < 10, begin
