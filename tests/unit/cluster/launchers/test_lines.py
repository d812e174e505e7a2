# SPDX-License-Identifier: BSD-3-Clause
"""How launchers label lines and say which rank failed: their own words, as they printed them."""

from __future__ import annotations

from kedge.cluster.launchers.known import find_launch_program
from kedge.cluster.launchers.own import label_line, tell_end
from kedge.cluster.launchers.program import RankEnd
from tests.builders.rows import with_rows


@with_rows(
    *(("srun", "0: hello", (0, "hello")), ("srun", " 12: a: b", (12, "a: b")), ("srun", "3: ", (3, ""))),
    ("srun", "srun: error: n1: task 0: Killed", (None, "srun: error: n1: task 0: Killed")),
    ("mpirun", "[1,3]<stdout>:hello", (3, "hello")),
    ("mpirun", "[1,10]<stderr>:  x\n", (10, "  x\n")),
    ("mpirun", "[1,0]<stdout>:a line[1,0]<stdout>:\n", (0, "a line\n")),
    ("mpirun", "[1,0]<stdout>:of[1,0]<stdout>: two[1,1]<stdout>:\n", (0, "of two[1,1]<stdout>:\n")),
    ("mpirun", "[prterun-vm-4711@1,2]<stdout>:  five", (2, " five")),
    ("mpirun", "[prterun-vm-4711@1,2]<stdout>: five", (2, "five")),
    ("mpirun", "mpirun noticed that", (None, "mpirun noticed that")),
    ("mpiexec", "[7] hello", (7, "hello")),
    ("mpiexec", "[proxy:0:0@vm] gone", (None, "[proxy:0:0@vm] gone")),
    ("ibrun", "0: hello", (None, "0: hello")),
    ("local", "5: hello: you", (5, "hello: you")),
)
def test_labels_are_taken_off(name: str, line: str, split: tuple[int | None, str]) -> None:
    assert find_launch_program(name).split_label(line) == split


@with_rows(
    ("srun", "srun: error: gpu02: task 3: Exited with exit code 7", RankEnd(3, 7, "gpu02")),
    ("srun", "srun: error: n1: tasks 0-3: Exited with exit code 1", RankEnd(0, 1, "n1")),
    ("srun", "srun: error: n1: task 1: Killed", RankEnd(1, 137, "n1")),
    ("srun", "srun: error: n1: task 1: Segmentation fault (core dumped)", RankEnd(1, 139, "n1")),
    ("srun", "srun: error: n1: task 2: Out Of Memory", RankEnd(2, 137, "n1")),
    ("srun", "srun: job 12 queued and waiting for resources", None),
    ("mpirun", "  Process name: [[8430,1],1]", RankEnd(1)),
    ("mpirun", "  Process name: [prterun-vm-99@1,4]", RankEnd(4)),
    ("mpirun", "  Exit code:    5", RankEnd(status=5)),
    (
        "mpirun",
        "mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 6 (Aborted).",
        RankEnd(2, 134, "vm"),
    ),
    ("mpirun", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", RankEnd(3)),
    ("mpirun", "with errorcode 9.", RankEnd(status=9)),
    ("mpiexec", "=   PID 19578 RUNNING AT vm", RankEnd(None, None, "vm", 19578)),
    ("mpiexec", "=   RANK 1 PID 77 RUNNING AT n1", RankEnd(1, None, "n1", 77)),
    ("mpiexec", "=   EXIT CODE: 3", RankEnd(status=3)),
    ("mpiexec", "=   KILLED BY SIGNAL: 9 (Killed)", RankEnd(status=137)),
    ("mpiexec", "Abort(5) on node 1 (rank 1 in comm 0): application called MPI_Abort", RankEnd(1, 5)),
    ("mpiexec", "=   CLEANING UP REMAINING PROCESSES", None),
    ("ibrun", "=   EXIT CODE: 3", RankEnd(status=3)),
)
def test_ends_are_read(name: str, line: str, end: RankEnd | None) -> None:
    assert find_launch_program(name).read_end(line) == end


def test_own_lines_are_read_as_they_are_written() -> None:
    program = find_launch_program("local")
    assert program.split_label(label_line(4, "x")) == (4, "x")
    assert program.read_end(tell_end(4, 137, "n1")) == RankEnd(4, 137, "n1")
