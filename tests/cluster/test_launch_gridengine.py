# SPDX-License-Identifier: BSD-3-Clause
"""`kedge launch` on a real Grid Engine with two hosts: one process per node by `qrsh -inherit`, no MPI on the host."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.cluster.daemons import wait_until
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import HOSTILE, JobUser, leaving_nothing
from tests.cluster.test_launch_mpi_modes import FAMILIES, list_ranks, make_images
from tests.cluster.test_launch_slurm import LONG, SHOW, list_sleepers
from tests.cluster.two_hosts import TWO, cell_user, settle

me = cell_user
SILENT = [
    ("mpich", "--launcher mpirun", "cannot start ranks of MPICH"),
    ("openmpi", "--launcher mpiexec", "cannot start ranks of Open MPI"),
    ("openmpi", "--launcher qrsh", "does not connect ranks of MPI"),
    ("mpich", "--mpi-mode pmi", "this is no Slurm job"),
]


def test_ranks_know_who_they_are_on_both_nodes(me: JobUser) -> None:
    shown = me.run_job("--ranks", *TWO, "tools.sif", "sh", "-c", SHOW)
    lines = sorted(line for line in shown.splitlines() if "/4" in line)
    assert [line.rpartition(" node ")[0] for line in lines] == [
        "0/4 local 0/2",
        "1/4 local 1/2",
        "2/4 local 0/2",
        "3/4 local 1/2",
    ], shown
    hosts = [line.split()[-2] for line in lines]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    assert {line.split()[-1] for line in lines} == {hosts[0]}


def test_words_arrive_as_they_were_typed(me: JobUser) -> None:
    shown = me.run_job(
        "--ranks", *TWO, "tools.sif", "printf", "<%s>\n", *(word for word in HOSTILE if "\n" not in word)
    )
    for word in HOSTILE:
        if "\n" not in word:
            assert shown.count(f"<{word}>\n") == 4, word


def test_the_first_rank_that_fails_ends_all_and_its_lines_come_first(me: JobUser) -> None:
    program = f'echo start $RANK; [ $RANK = 3 ] && {{ sleep 1; echo "no such data" >&2; exit 7; }}; sleep {LONG}'
    began = time.monotonic()
    id = me.submit("--ranks", *TWO, "tools.sif", "sh", "-c", program)
    me.wait(id)
    assert time.monotonic() - began < 60
    assert me.status(id)["exit_code"] == 7
    logs = me.run("logs", id).stdout
    assert "rank 3 on ge0" in logs, logs
    assert "failed with status 7" in logs, logs
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)


@pytest.fixture(scope="module")
def mpi(gridengine: GridEngineCell) -> Iterator[JobUser]:
    with leaving_nothing(gridengine) as user:
        yield settle(user)


@pytest.fixture(scope="module")
def images(mpi: JobUser) -> dict[str, str]:
    return make_images(mpi)


def launch_mpi(mpi: JobUser, *commands: str) -> str:
    """What one job prints that launches all these; both hosts have one kernel, which UCX takes for one node."""
    kedge = " ".join(mpi.user.program)
    line = "; ".join(f"{kedge} launch {each}; echo status $?" for each in commands)
    return mpi.run_job(*TWO, "-", "sh", "-c", f"export UCX_TLS=tcp,self; {line}")


@pytest.mark.parametrize("family", FAMILIES)
def test_gridengine_mpi_hybrid_and_bind(mpi: JobUser, images: dict[str, str], family: str) -> None:
    shown = launch_mpi(mpi, f"{images[family]} ranks-{family}", f"--mpi-mode bind {images['bare']} ranks-{family}")
    found = [re.fullmatch(r"rank (\d) of 4 on (ge0\d) sum 6", line) for line in list_ranks(shown)]
    hosts = {(int(match[1]), match[2]) for match in found if match}
    assert len(found) == 8, shown
    assert ({rank for rank, _ in hosts}, len(hosts)) == ({0, 1, 2, 3}, 4), "every rank twice, on the same host"
    assert {host: sum(host == each for _, each in hosts) for _, host in hosts} == {"ge01": 2, "ge02": 2}


def test_gridengine_mpi_refuses_wrong_pairs_before_the_program_runs(mpi: JobUser, images: dict[str, str]) -> None:
    shown = launch_mpi(mpi, *(f"{words} {images[family]} ranks-{family} ran" for family, words, _ in SILENT))
    assert shown.count("status 93\n") == len(SILENT), shown
    for (_, words, reason), part in zip(SILENT, shown.split("status 93\n")[:-1], strict=True):
        assert reason in part, f"{words}\n{shown}"
    assert (list_ranks(shown), (mpi.folder / "ran").exists()) == ([], False)
