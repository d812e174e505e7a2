# SPDX-License-Identifier: BSD-3-Clause
"""MPI over two hosts of a real Grid Engine: the host's launcher reaches them by qrsh; wrong pairs never run."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.test_launch_gridengine import PROFILE, TWO
from tests.cluster.test_launch_mpi_modes import FAMILIES, list_ranks, make_images

SILENT = [
    ("mpich", "--launcher mpirun", "cannot start ranks of MPICH"),
    ("openmpi", "--launcher mpiexec", "cannot start ranks of Open MPI"),
    ("openmpi", "--launcher qrsh", "does not connect ranks of MPI"),
    ("mpich", "--mpi-mode pmi", "this is no Slurm job"),
]


@pytest.fixture(scope="module")
def me(gridengine: GridEngineCell) -> Iterator[JobUser]:
    with leaving_nothing(gridengine) as user:
        user.write("config/kedge/sites/cell.toml", PROFILE)
        yield user.with_environment(KEDGE_SITE="cell", XDG_CONFIG_HOME=str(user.folder / "config"))


@pytest.fixture(scope="module")
def images(me: JobUser) -> dict[str, str]:
    return make_images(me)


def launch(me: JobUser, *commands: str) -> str:
    """What one job prints that launches all these; both hosts have one kernel, which UCX takes for one node."""
    kedge = " ".join(me.user.program)
    line = "; ".join(f"{kedge} launch {each}; echo status $?" for each in commands)
    return me.run_job(*TWO, "-", "sh", "-c", f"export UCX_TLS=tcp,self; {line}")


@pytest.mark.parametrize("family", FAMILIES)
def test_gridengine_mpi_hybrid_and_bind(me: JobUser, images: dict[str, str], family: str) -> None:
    shown = launch(me, f"{images[family]} ranks-{family}", f"--mpi-mode bind {images['bare']} ranks-{family}")
    found = [re.fullmatch(r"rank (\d) of 4 on (ge0\d) sum 6", line) for line in list_ranks(shown)]
    hosts = {(int(match[1]), match[2]) for match in found if match}
    assert len(found) == 8, shown
    assert ({rank for rank, _ in hosts}, len(hosts)) == ({0, 1, 2, 3}, 4), "every rank twice, on the same host"
    assert {host: sum(host == each for _, each in hosts) for _, host in hosts} == {"ge01": 2, "ge02": 2}


def test_gridengine_mpi_refuses_wrong_pairs_before_the_program_runs(me: JobUser, images: dict[str, str]) -> None:
    shown = launch(me, *(f"{words} {images[family]} ranks-{family} ran" for family, words, _ in SILENT))
    assert shown.count("status 93\n") == len(SILENT), shown
    for (_, words, reason), part in zip(SILENT, shown.split("status 93\n")[:-1], strict=True):
        assert reason in part, f"{words}\n{shown}"
    assert (list_ranks(shown), (me.folder / "ran").exists()) == ([], False)
