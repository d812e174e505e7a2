# SPDX-License-Identifier: BSD-3-Clause
"""What a log says becomes clues: causes before consequences, the rank that failed first before others, no secrets."""

from __future__ import annotations

from kedge.compat.failures.failure import CONSEQUENCE, GENERAL, NOTE
from kedge.compat.failures.find_clues import explain_failure, find_clues
from tests.builders.rows import each_row

FORWARD = "RuntimeError: Unexpected error. Error 804: forward compatibility was attempted on non supported HW"
ARCHITECTURES = (
    "GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n"
    "The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70.\n"
)
NO_DEVICE = "RuntimeError: cuda runtime error (100) : no CUDA-capable device is detected"
MODES = "WARNING: CUDA Minor Version Compatibility mode ENABLED.\nNOTE: CUDA Forward Compatibility mode ENABLED.\n"


def test_clues_fill_in_what_the_message_says() -> None:
    [clue] = find_clues(ARCHITECTURES)
    assert clue.cause == "the image has no kernels for a GPU of compute capability 8.6; it has 3.7 5.0 6.0 7.0"
    [clue] = find_clues(ARCHITECTURES.partition("\n")[0])
    assert clue.cause.endswith("it has others only")


def test_clues_of_modes_that_work_are_notes() -> None:
    assert find_clues(MODES) == ()
    assert [clue.level for clue in find_clues(MODES, notes=True)] == [NOTE, NOTE]
    assert not any(clue.is_failure for clue in find_clues(MODES, notes=True))
    assert find_clues("all is well\n") == ()


def test_clues_cause_comes_before_what_follows_from_it() -> None:
    first = find_clues("\n".join((NO_DEVICE, ARCHITECTURES, FORWARD)))[0]
    assert first.name == "forward-804"


def test_clues_have_line_numbers() -> None:
    [clue] = find_clues("one\ntwo\n" + FORWARD + "\nfour\n")
    assert (clue.number, clue.place) == (3, "line 3")


def test_clues_of_the_rank_that_failed_first_come_before_others() -> None:
    text = (
        "0: RuntimeError: CUDA out of memory. Tried to allocate\n"
        "1: FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n"
        "srun: error: gpu01: task 1: Exited with exit code 1\n"
    )
    clues = find_clues(text)
    assert [clue.name for clue in clues] == ["no-such-file", "gpu-memory", "rank-exited"]
    assert (clues[0].rank, clues[0].line[:5]) == ("1", "FileN")
    assert clues[2].level == CONSEQUENCE


def test_clues_consequences_of_other_ranks_come_last() -> None:
    text = (
        "[1,0]<stderr>:RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1\n"
        "[1,2]<stderr>:RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:2\n"
        "[1,1]<stderr>:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    first, second = find_clues(text)
    assert (first.name, first.rank) == ("gpu-memory", "1")
    assert (second.name, second.count, second.ranks) == ("peer-gone", 2, 2)


def test_clues_message_over_lines_of_one_rank_among_others() -> None:
    text = (
        '0: The application appears to have been direct launched using "srun",\n'
        '1: The application appears to have been direct launched using "srun",\n'
        "0: but OMPI was not built with SLURM's PMI support and therefore cannot\n"
        "1: but OMPI was not built with SLURM's PMI support and therefore cannot\n"
    )
    clue = explain_failure(text)
    assert (clue.name, clue.ranks) == ("no-slurm-pmi", 2)


def test_clues_unknown_exception_is_told_as_such() -> None:
    text = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nmine.OddError: too odd\n'
    [clue] = find_clues(text)
    assert (clue.name, clue.level, clue.number) == ("python-exception", GENERAL, 3)
    assert "ended with mine.OddError" in clue.cause
    assert find_clues("WARNING: caught mine.OddError: too odd\n") == ()


def test_clues_known_exception_is_not_told_twice() -> None:
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n"
    assert [clue.name for clue in find_clues(text)] == ["no-module"]


def test_clues_silent_singletons_need_two() -> None:
    assert find_clues("rank 0 of 1\n") == ()
    assert [clue.name for clue in find_clues("rank 0 of 1\nrank 0 of 1\n")] == ["singletons"]
    assert [clue.name for clue in find_clues("0: rank 0/1\n1: rank 0/1\n")] == ["singletons"]


def test_clues_repeat_no_secrets() -> None:
    line = "FileNotFoundError: [Errno 2] No such file or directory: '/d' NGC_API_KEY=abcdef123456 nvapi-abcdefghijkl"
    [clue] = find_clues(line)
    assert "abcdef" not in clue.line
    assert "***" in clue.line


@each_row("noise", ["\x1b[31m{}\x1b[0m", "epoch 1: 10%|#  |\r{}\r", "{}\r\n", "\x00\xff{}"])
def test_clues_in_colours_progress_bars_and_junk(noise: str) -> None:
    [clue] = find_clues("begin\n" + noise.format(FORWARD) + "\n")
    assert FORWARD in clue.line
    assert clue.number == 2


def test_clues_long_and_wild_text_is_bounded() -> None:
    [clue] = find_clues("x" * 300_000 + " CUDA failure 804 \x1b[31m" + "y" * 300_000)
    assert clue.line == "CUDA failure 804"
    assert find_clues("supports CUDA capabilities " + "sm_90 " * 50_000) == ()


def test_clues_in_passing_come_after_what_ended_the_program() -> None:
    text = (
        "job.sh: line 2: module: command not found\n"
        'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nmine.OddError: too odd\n'
    )
    assert [clue.name for clue in find_clues(text)] == ["python-exception", "command-not-found"]
    assert [clue.name for clue in find_clues(text.partition("\n")[0])] == ["command-not-found"]
