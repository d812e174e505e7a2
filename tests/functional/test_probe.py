# SPDX-License-Identifier: BSD-3-Clause
"""The probe in containers, as an ordinary user, with real Open MPI and MPICH: inside, outside, and the wrong pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.launch.check_world import AskedWorld, compare_world
from kedge.launch.probe.answers import read_answers, read_failures, read_lines
from tests.builders.containers import Runner, as_user, give_to, make_sandbox
from tests.builders.mpi_images import installed_title, launch_words, make_mpi_image, probe_rank

FAMILIES = ("openmpi", "mpich")


@pytest.fixture(scope="module")
def images(runner: Runner) -> dict[str, Path]:
    return {family: make_mpi_image(runner, family) for family in FAMILIES}


def launch(runner: Runner, launcher: str, ranks: int, image: Path, *words: str) -> str:
    """What the ranks print."""
    argv = as_user(runner.uid, [*launch_words(launcher, ranks), *probe_rank(image, *words)])
    return runner.call(argv, env={"TMPDIR": "/tmp"}).stdout


@pytest.mark.parametrize("family", FAMILIES)
def test_probe_tells_the_version_without_starting_mpi(runner: Runner, images: dict[str, Path], family: str) -> None:
    done = runner.call(as_user(runner.uid, probe_rank(images[family], "version")))
    (value,) = read_lines(done.stdout)
    assert value["abi"] == family
    assert value["version"].startswith({"openmpi": "Open MPI v", "mpich": "MPICH Version:"}[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_probe_sees_the_world_that_was_asked_for(runner: Runner, images: dict[str, Path], family: str) -> None:
    answers = read_answers(launch(runner, family, 3, images[family], "world"))
    assert [(each.task, each.rank, each.size) for each in answers] == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    assert compare_world(AskedWorld(3), answers) is None


@pytest.mark.parametrize(
    ("launcher", "family", "hint"),
    [("openmpi", "mpich", "--launcher mpiexec"), ("mpich", "openmpi", "--launcher mpirun")],
)
def test_probe_finds_silent_singletons(runner, images, launcher, family, hint):
    answers = read_answers(launch(runner, launcher, 2, images[family], "world"))
    name = {"openmpi": "mpirun", "mpich": "mpiexec"}[launcher]
    problem = compare_world(AskedWorld(2, launcher=name, family=installed_title(family)), answers)
    assert problem is not None
    assert (problem.kind, problem.is_fatal) == ("singletons", True)
    assert f"{installed_title(family)} needs" in problem.sentence
    assert hint in problem.hint


def test_probe_pi_is_the_same_on_any_number_of_ranks(runner: Runner, images: dict[str, Path]) -> None:
    answers = [
        value["pi"]
        for family, ranks in (("openmpi", 1), ("openmpi", 3), ("mpich", 4))
        for value in read_lines(launch(runner, family, ranks, images[family], "pi", "--intervals", "1000000"))
    ]
    assert len(answers) == 3
    assert len(set(answers)) == 1
    assert abs(answers[0] - 3.141592653589793) < 1e-12


@pytest.mark.parametrize("ranks", [4, pytest.param(64, marks=pytest.mark.long)])
def test_probe_ranks_of_a_node_share_namespaces_and_read_each_other(runner, images, ranks):
    values = list(read_lines(launch(runner, "openmpi", ranks, images["openmpi"], "cma")))
    expected = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    assert sorted((value["rank"], value["neighbour"]) for value in values) == expected
    assert [value["error"] for value in values if not value["read"]] == []
    assert len({(value["user_namespace"], value["mount_namespace"]) for value in values}) == 1


def test_probe_says_why_it_cannot_answer(runner: Runner, images: dict[str, Path]) -> None:
    box = give_to(runner, make_sandbox(runner.folder / "box"))

    def reason(image: Path, *words: str) -> str:
        done = runner.call(as_user(runner.uid, probe_rank(image, *words)))
        assert done.returncode == 3, done.stderr
        (failure,) = read_failures(done.stdout)
        return failure.reason

    assert reason(box, "world").startswith("the image has no dynamic loader for ")
    assert reason(images["mpich"], "version", "--library", "/lib/libmpi.so.40").startswith(
        "cannot open the MPI library"
    )
