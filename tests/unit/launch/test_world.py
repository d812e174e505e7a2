# SPDX-License-Identifier: BSD-3-Clause
"""The check of the ranks: which world answers, and why it failed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from kedge.launch import check_world
from kedge.launch.check_world import AskedWorld, WorldProblem, compare_world, explain_singletons
from kedge.launch.follow_output import RankFailure
from kedge.launch.probe.answers import RankAnswer
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_reads, assert_says

OPEN_MPI, MPICH = "Open MPI 4.1.4", "MPICH 4.0.2"


def answer(rank: int, size: int, host: str = "n1", task: int = -1, has_met: bool = True) -> RankAnswer:
    return RankAnswer(rank, size, host, 100 + task if task >= 0 else 500 + rank, task, has_met)


def problem(asked: AskedWorld, *answers: RankAnswer) -> WorldProblem:
    found = compare_world(asked, answers)
    assert "  " not in found.sentence + found.hint
    assert not found.sentence.endswith(".") or found.kind == "singletons"
    return found


def test_world_that_was_asked_for() -> None:
    assert compare_world(AskedWorld(4), [answer(rank, 4, f"n{rank // 2}", rank) for rank in range(4)]) is None
    assert compare_world(AskedWorld(1), [answer(0, 1)]) is None


@given(some.integers(1, 64), some.randoms())
def test_world_in_any_order_of_lines(size: int, shuffle: object) -> None:
    answers = [answer(rank, size, f"n{rank % 3}", rank) for rank in range(size)]
    shuffle.shuffle(answers)  # type: ignore[attr-defined]
    assert compare_world(AskedWorld(size), answers) is None


@given(some.integers(2, 40), some.data())
def test_world_of_any_other_kind_is_refused(size: int, data: some.DataObject) -> None:
    """Whatever processes answer: unless it is every rank once, of this size, having met, it does not pass."""
    one = some.builds(
        answer, some.integers(0, size), some.sampled_from([1, size, size + 1]), some.sampled_from("ab"), some.just(-1)
    )
    answers = data.draw(some.lists(one, max_size=size + 2))
    right = sorted(each.rank for each in answers) == list(range(size)) and {each.size for each in answers} == {size}
    found = compare_world(AskedWorld(size), answers)
    assert (found is None) == right


@each_row(("launcher", "mpi_type", "family", "reason", "hint"), [
    ("srun", "pmix", MPICH, "MPICH 4.0.2 needs PMI-1 or PMI-2, and 'srun --mpi=pmix' does not", "--mpi-type pmi2"),
    ("srun", "", MPICH, "'srun --mpi=none' does not offer it", "--mpi-type pmi2"),
    ("srun", "pmi2", OPEN_MPI, "Open MPI 4.1.4 needs PMIx", "--mpi-type pmix"),
    ("mpirun", "", MPICH, "PMI-2, and mpirun of this host does not offer it", "--launcher mpiexec"),
    ("mpiexec", "", OPEN_MPI, "PMIx, and mpiexec of this host does not offer it", "--launcher mpirun"),
    ("local", "", MPICH, "local of this host does not offer it", "--launcher mpiexec"),
    ("mpirun", "", "", "", "kedge mpi check IMAGE"),
])  # fmt: skip
def test_world_of_singletons_names_what_is_missing(
    launcher: str, mpi_type: str, family: str, reason: str, hint: str
) -> None:
    found = problem(AskedWorld(2, (), launcher, mpi_type, family), answer(0, 1, task=0), answer(0, 1, task=1))
    assert found.kind == "singletons"
    assert found.is_fatal
    assert_says(found.sentence, "launch/each-processes-says-rank")
    assert reason in found.sentence
    assert hint in found.hint


def test_world_of_singletons_in_part_or_without_a_fitting_pmi() -> None:
    # Open MPI's singletons start at the same place in /tmp, and one of them may fail
    found = problem(AskedWorld(3), answer(0, 1))
    assert found.kind == "singletons"
    assert_reads(found.sentence.partition(": ")[2], "launch/processes-answered-says-rank", 1, 3)
    asked = AskedWorld(2, launcher="srun", mpi_type="none", family=OPEN_MPI, mpi_types=("none", "pmi2"))
    reason, hint = explain_singletons(asked)
    assert "srun of this site offers none, pmi2 only" in reason
    assert "--launcher mpirun" in hint


def test_world_split_or_in_part() -> None:
    answers = [answer(rank, 2, host) for host in ("n1", "n2") for rank in range(2)]
    found = problem(AskedWorld(4, launcher="qrsh"), *answers)
    assert found.kind == "split"
    assert_reads(found.sentence, "launch/ranks-separate-worlds-one-each", 2, 4)
    assert "--launcher" in found.hint
    found = problem(AskedWorld(3), answer(0, 2, "n1", 0), answer(1, 2, "n2", 1), answer(0, 1, "n2", 2))
    assert found.kind == "split"
    assert_reads(found.sentence, "launch/ranks-found-each-other-did", 2, 1)


def test_world_with_duplicates_or_missing_ranks() -> None:
    found = problem(AskedWorld(2), answer(0, 2), answer(1, 2), answer(1, 2, "n2"))
    assert found.kind == "duplicates"
    assert_reads(found.sentence, "launch/several-processes-same-rank-rank", 1)
    assert problem(AskedWorld(2), answer(0, 2), answer(0, 2, "n2")).kind == "duplicates"
    hosts = ("n1", "n1", "n2", "n2", "n3", "n3")
    found = problem(AskedWorld(6, hosts), *(answer(rank, 6) for rank in (0, 1, 3)))
    assert found.kind == "missing"
    assert_reads(found.sentence, "launch/ranks-did-not-answer-ranks")


def test_world_of_another_size_order_or_silent() -> None:
    found = problem(AskedWorld(2), *(answer(rank, 4) for rank in range(4)))
    assert found.kind == "size"
    assert_reads(found.sentence, "launch/mpi-counts-ranks-asked", 2)
    found = problem(AskedWorld(2), answer(0, 2, task=1), answer(1, 2, task=0))
    assert (found.kind, found.is_fatal) == ("order", False)
    found = problem(AskedWorld(2), answer(0, 2, "n1", has_met=False), answer(1, 2, "n2", has_met=False))
    assert_reads(found.sentence, "launch/ranks-found-each-other-but")
    found = problem(AskedWorld(2), answer(0, 2), answer(1, 2, has_met=False))
    assert_says(found.sentence, "launch/but-cannot-exchange-data-rank", "n1")
    assert_reads(problem(AskedWorld(3)).sentence, "launch/none-ranks-answered-world-check")


NOTE = "kedge: waiting for process 4711, which is unpacking the image: app.sif"


def explain(*lines: str) -> str:
    heard = check_world._Heard()
    for line in lines:
        heard.write(True, f"{line}\n")
    error = check_world._explain_failure(RankFailure(0, 137, "gpu01"), "", heard)
    return f"{error} {error.hint}"


def test_check_that_failed_says_why() -> None:
    assert_begins(explain(NOTE, "Fatal error in internal_Init"), "launch/world-check-failed-rank-ended")
    said = explain(NOTE, "kedge: MPICH needs pmi2", "hint: give --mpi-type pmi2")
    assert said.startswith("MPICH needs pmi2")
    assert said.endswith("give --mpi-type pmi2")
