# SPDX-License-Identifier: BSD-3-Clause
"""MPICH's launcher reports one of the ranks that ended, often one that it killed itself: kedge names the first."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.builders.containers import Runner, warm_runner
from tests.builders.mpi_images import make_mpi_image
from tests.requirements import REPOSITORY, require_program
from tests.wording import assert_says

runner = warm_runner


@pytest.fixture(scope="module")
def program(runner: Runner) -> str:
    path = runner.home / "death"
    source = str(REPOSITORY / "tests/interop/mpi_death.c")
    subprocess.run([require_program("mpicc.mpich"), "-o", str(path), source], check=True, capture_output=True)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("way", "status", "said"),
    [
        ("exit", 3, "failed with status 3|ended first"),
        pytest.param("crash", 139, "was killed by SIGSEGV|ended first", marks=pytest.mark.long),
        ("kill", 137, "was killed by SIGKILL|ended first"),
        ("abort", 5, "failed with status 5|was killed by SIGSEGV"),  # that of Debian 13 crashes on its way out
    ],
)
def test_the_rank_that_failed_is_named(runner: Runner, program: str, way: str, status: int, said: str) -> None:
    image = make_mpi_image(runner, "mpich")
    for _ in range(3):  # of 60 ranks one ended before the launch could watch it
        done = runner.run("launch", "--no-check", "--tasks", "4", str(image), program, way)
        if "rank 2 on " in done.stderr:
            break
    if way == "abort" and "Abort(5) on node 2" not in done.stderr:
        assert_says(done.stderr, "pull/launch-failed-status", 5)  # killed before its words came out
        return
    assert re.search(rf"rank 2 on \S+ ({said}).*; the other ranks were ended", done.stderr), done.stderr
    if "ended first" not in done.stderr:  # its launcher was faster than we, and has asked for its status
        crashed = way == "abort" and "killed by SIGSEGV" in done.stderr
        assert done.returncode == (139 if crashed else status), done.stderr


def test_a_rank_that_fails_alone_is_named(runner: Runner) -> None:
    """Without MPI the launcher lets the others go on, and names nobody."""
    image = make_mpi_image(runner, "mpich")
    words = ("launch", "--no-check", "--tasks", "3", "--launcher", "mpiexec", "--mpi", str(image))
    done = runner.run(*words, "sh", "-c", "[ $PMI_RANK != 1 ] || exit 7")
    assert done.returncode == 7, done.stderr
    assert "rank 1 on " in done.stderr or "the launch failed with status 7" in done.stderr
