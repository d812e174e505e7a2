# SPDX-License-Identifier: BSD-3-Clause
"""What ranks print on its way to the user: lines, labels, the failing rank's lines and the clue in them."""

from __future__ import annotations

import time

import pytest

from kedge.cluster.launchers.hydra import HYDRA
from kedge.cluster.launchers.open_mpi import OPEN_MPI
from kedge.cluster.launchers.own import LOCAL, label_line, tell_end
from kedge.cluster.launchers.program import LaunchProgram
from kedge.cluster.launchers.srun import SRUN
from kedge.launch.describe import find_rank_clue
from kedge.launch.follow_output import OutputFollower, RankFailure
from kedge.launch.line_buffer import LineBuffer


class Written:
    def __init__(self, program: LaunchProgram, **options: str) -> None:
        self.lines: list[str] = []
        self.follower = OutputFollower(
            program, lambda is_error, text: self.lines.append("!" * is_error + text), **options
        )

    def hear(self, text: str, *, is_error: bool = False) -> None:
        self.follower.hear(0, is_error, text.encode())


def test_lines_of_programs_are_no_ends_of_ranks() -> None:
    written = Written(SRUN)
    written.hear("0: he")
    written.hear("llo\n1: you\n")
    written.hear("2: end")
    assert written.lines == ["hello\n", "you\n"]
    written.follower.finish()
    assert written.lines[2:] == ["end"]
    written = Written(SRUN)
    written.hear("0: srun: error: n1: task 0: Killed\n", is_error=True)
    written.hear("srun: error: n1: task 0: Killed\n")
    assert not written.follower.ended_at


def test_the_first_rank_that_failed_decides() -> None:
    written = Written(SRUN)
    written.hear("0: fine\n1: bad\n0: still fine\n")
    written.hear("srun: error: n2: task 1: Exited with exit code 7\n", is_error=True)
    written.hear("srun: error: n1: task 0: Killed\n", is_error=True)
    written.hear("0: late\n")
    assert written.lines == ["fine\n", "bad\n", "still fine\n"]
    failure = written.follower.find_failure(137)
    assert (failure.rank, failure.status, failure.host, failure.lines) == (1, 7, "n2", ("bad",))
    assert not failure.is_shown
    written.follower.release()
    assert written.lines[3:] == [
        "!srun: error: n2: task 1: Exited with exit code 7\n",
        "!srun: error: n1: task 0: Killed\n",
        "late\n",
    ]
    written = Written(LOCAL)
    written.hear("0: fine\n1: bad\n1: worse\n")
    written.hear(tell_end(1, 3, "vm") + "\n", is_error=True)
    failure = written.follower.find_failure(3)
    assert failure.lines == ("bad", "worse")
    assert failure.is_shown
    written.follower.release()
    assert written.lines == ["fine\n", "bad\n", "worse\n"]


def test_a_rank_of_hydra_is_known_by_its_process_or_its_abort() -> None:
    written = Written(HYDRA, token="T")
    written.hear("[0] T 0 vm 41\n[1] T 1 vm 42\n", is_error=True)
    written.hear("=   PID 42 RUNNING AT vm\n=   EXIT CODE: 5\n", is_error=True)
    failure = written.follower.find_failure(5)
    assert (failure.rank, failure.status, failure.host) == (1, 5, "vm")
    assert written.lines == []
    written = Written(HYDRA, token="T")
    written.hear("[0] T 0 vm 41\n[1] T 1 vm 42\n", is_error=True)
    written.hear("[1] Abort(5) on node 1 (rank 1 in comm 0): application called MPI_Abort\n", is_error=True)
    written.hear("[0] Abort(6) on node 1 (rank 1 in comm 0): as if\n", is_error=True)
    assert not written.follower.ended_at
    failure = written.follower.find_failure(5)
    assert (failure.rank, failure.status, failure.host) == (1, 5, "vm")


def test_failures_are_pieced_together() -> None:
    written = Written(OPEN_MPI)
    written.hear("  Process name: [[8430,1],1]\n  Exit code:    5\n", is_error=True)
    failure = written.follower.find_failure(5)
    assert (failure.rank, failure.status) == (1, 5)
    written = Written(SRUN)
    written.hear("srun: error: Unable to create step\n", is_error=True)
    failure = written.follower.find_failure(1)
    assert (failure.rank, failure.status, failure.lines) == (None, 1, ("srun: error: Unable to create step",))
    written = Written(LOCAL, token="kedge-1")
    written.hear("kedge-1 node 1\nkedge-1 0 gpu01 77\nkedge-2 node 0\n", is_error=True)
    assert written.follower.finished == {1}
    assert list(written.follower.ranks) == [0]
    assert written.lines == ["!kedge-2 node 0\n"]


def test_long_lines_cost_no_memory() -> None:
    written = Written(SRUN)
    for _ in range(40):
        written.hear("x" * 65536)
    assert "".join(written.lines) == "x" * sum(map(len, written.lines))
    assert sum(map(len, written.lines)) > 39 * 65536 - (1 << 20)  # what is held is less than what is written at once
    written = Written(LOCAL)
    for text, is_part in (("one ", True), ("line", False), ("next", False)):
        written.hear(label_line(7, text, is_part=is_part) + "\n")
    assert "".join(written.lines) == "one line\nnext\n"
    written = Written(SRUN)
    written.hear("srun: error: n2: task 1: Exited with exit code 7\n", is_error=True)
    for _ in range(20):
        written.hear("0: " + "x" * (1 << 19) + "\n")
    assert 0 < len(written.lines) < 10


def test_a_long_line_stays_its_ranks_and_is_no_word_of_the_launcher() -> None:
    """A rank prints more than the follower keeps of a line, then what would end the launch."""
    written = Written(SRUN)
    written.hear("3: " + "x" * (2 << 20), is_error=True)
    written.hear("srun: error: n1: task 0: Killed\n", is_error=True)
    assert not written.follower.ended_at
    assert written.lines[-1] == "!srun: error: n1: task 0: Killed\n"
    written.hear("srun: error: n1: task 3: Exited with exit code 7\n", is_error=True)
    failure = written.follower.find_failure(7)
    assert failure.rank == 3
    assert len(failure.lines[0]) == 2000


class Taken:
    def __init__(self, longest: int = 8) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.buffer = LineBuffer(lambda stream, line: self.lines.append((stream, line)), longest)


def test_lines_of_streams_are_kept_apart() -> None:
    taken = Taken()
    taken.buffer.hear("a", b"one")
    taken.buffer.hear("b", b"two\nthr")
    taken.buffer.hear("a", b"\n\n")
    taken.buffer.flush()
    taken.buffer.flush()
    assert taken.lines == [("b", b"two\n"), ("a", b"one\n"), ("a", b"\n"), ("b", b"thr")]
    taken = Taken()
    for piece in (b"12345", b"67890", b"x\ny\n"):
        taken.buffer.hear("a", piece)
    assert taken.lines == [("a", b"1234567890"), ("a", b"x\n"), ("a", b"y\n")]

    def refuse(stream: int, line: bytes) -> None:
        raise BrokenPipeError(f"{stream} {line!r}")

    buffer = LineBuffer(refuse, 8)
    with pytest.raises(BrokenPipeError):
        buffer.hear(1, b"one\n")
    buffer.flush()


def test_single_bytes_without_an_end_are_cheap() -> None:
    """What was kept so far is not copied for each of them."""
    taken = Taken(1 << 20)
    began = time.monotonic()
    for _ in range(1 << 20):
        taken.buffer.hear("a", b".")
    assert time.monotonic() - began < 30


def test_clue_comes_from_the_rank_or_the_launcher() -> None:
    clue = find_rank_clue(RankFailure(1, 1, lines=("Traceback", "ModuleNotFoundError: No module named 'torch'")))
    assert clue.name == "no-module"
    said = ("slurmstepd: error: Exceeded job memory limit", "srun: error: n1: task 1: Killed")
    clue = find_rank_clue(RankFailure(1, 137, lines=("step 1",), launcher_lines=said))
    assert clue.name == "job-memory"
    lines = ("Traceback (most recent call last):", "ValueError: bad learning rate")
    said = ("srun: error: n1: task 1: Exited with exit code 1",)
    assert find_rank_clue(RankFailure(1, 1, lines=lines, launcher_lines=said)) is None
