# SPDX-License-Identifier: BSD-3-Clause
"""MPI over two and three hosts of a real Slurm, in every way that `kedge mpi check` knows; wrong pairs never run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.builders.mpi_images import find_programs
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster
from tests.requirements import require_program

THREE = ("-N", "3", "--tasks-per-node", "2", "-t", "5m")
FAMILIES = ("openmpi", "mpich")
# A word is a file that it writes. MPICH before 4.2 may wait for ever when it closes connections of UCX over TCP: this
# program leaves them to the kernel.
PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
void *ucp_disconnect_nb(void *end) { return 0; }
int main(int count, char **words)
{
    int rank, size;
    double mine, sum = 0;
    char host[64];
    FILE *mark = count > 1 ? fopen(words[1], "w") : 0;
    if (mark)
        fclose(mark);
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine = rank;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    gethostname(host, sizeof host);
    printf("rank %d of %d on %s sum %g\\n", rank, size, host, sum);
    return MPI_Finalize();
}
"""


@pytest.fixture(scope="module")
def me(slurm_three_hosts: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_three_hosts) as user:
        yield user.with_environment(UCX_TLS="tcp,self")  # all hosts have one kernel, which UCX takes for one node


def make_images(me: JobUser) -> dict[str, str]:
    """By family, directories with a program of this MPI and the MPI itself; `bare` has programs and no MPI."""
    source = me.write("ranks.c", PROGRAM)
    for name in (*FAMILIES, "bare"):
        programs = find_programs(name) if name in FAMILIES else ()
        packed = [*(require_program(word) for word in programs), "sh", "awk"]
        me.read("pull", "--format", "sandbox", name, f"host:{','.join(packed)}")
        for family in FAMILIES:
            place = me.folder / name / f"usr/bin/ranks-{family}"
            subprocess.run([require_program(f"mpicc.{family}"), str(source), "-o", str(place)], check=True, timeout=60)
            place.chmod(0o755)
    return {name: f"./{name}" for name in (*FAMILIES, "bare")}


@pytest.fixture(scope="module")
def images(me: JobUser) -> dict[str, str]:
    return make_images(me)


def launch(me: JobUser, *commands: str) -> str:
    """What one job on three nodes prints that launches all these, one after the other."""
    kedge = " ".join(me.user.program)
    line = "; ".join(f"{{kedge}} launch {each}; echo status $?" for each in commands)
    return me.run_job(*THREE, "-", "sh", "-c", line.replace("{kedge}", kedge))


def list_ranks(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith("rank "))


def expect_ranks(nodes: int) -> list[str]:
    size = 2 * nodes
    total = size * (size - 1) // 2
    return [f"rank {rank} of {size} on gpu0{rank // 2 + 1} sum {total}" for rank in range(size)]


@pytest.mark.parametrize("family", FAMILIES)
def test_launch_mpi_on_two_and_on_three_nodes(me: JobUser, images: dict[str, str], family: str) -> None:
    """Every way on three nodes, one of them on two: how many nodes there are is the launcher's concern."""
    ways = [f"--mpi-mode {mode} {images[family]} ranks-{family}" for mode in ("pmi", "hybrid")]
    ways += [f"--mpi-mode bind {images['bare']} ranks-{family}", f"--nodes 2 {ways[0]}"]
    # three times at most: Open MPI 4.1 over TCP crashes now and then in MPI_Init where the CPUs are busy
    shown = launch(me, *(" || {kedge} launch ".join([each] * 3) for each in ways))
    assert list_ranks(shown) == sorted([*expect_ranks(2), *expect_ranks(3) * 3]), shown
    assert shown.count("status 0") == 4


# the pairs of MPI and launcher that start N programs of one rank each, and end with exit code 0
SILENT = [
    ("mpich", "--mpi-type pmix", "srun --mpi=pmix does not connect ranks of MPICH"),
    ("mpich", "--mpi-type none", "srun --mpi=none does not connect ranks of MPICH"),
    ("mpich", "--launcher mpirun", "cannot start ranks of MPICH"),
    ("openmpi", "--launcher mpiexec", "cannot start ranks of Open MPI"),
]
# those that end with an error, and one that starts all ranks on one node
FAILING = [
    ("openmpi", "--mpi-type pmi2", "srun --mpi=pmi2 does not connect ranks of Open MPI"),
    ("openmpi", "--mpi-type none", "srun --mpi=none does not connect ranks of Open MPI"),
    ("mpich", "--mpi-mode contained", "starts ranks on its own node only, and the launch has 3 nodes"),
]


def test_launch_mpi_refuses_wrong_pairs_before_the_program_runs(me: JobUser, images: dict[str, str]) -> None:
    pairs = [*SILENT, *FAILING]
    shown = launch(me, *(f"{words} {images[family]} ranks-{family} ran" for family, words, _ in pairs))
    for (_, words, reason), part in zip(pairs, shown.split("status 93\n")[:-1], strict=True):
        assert reason in part, f"{words}\n{shown}"
    assert (list_ranks(shown), (me.folder / "ran").exists()) == ([], False)


def test_launch_mpi_asks_the_ranks_where_files_do_not_tell(me: JobUser, images: dict[str, str]) -> None:
    """A program in a script: what the image's files say is of no use."""
    shown = launch(me, *(f"{words} {images[family]} sh -c 'exec ranks-{family} ran'" for family, words, _ in SILENT))
    assert (shown.count("status 93"), (me.folder / "ran").exists()) == (len(SILENT), False), shown


def test_launch_mpi_check_in_a_job_knows_what_srun_serves(me: JobUser, images: dict[str, str]) -> None:
    kedge = " ".join(me.user.program)
    shown = me.run_job("-t", "5m", "-", "sh", "-c", f"{kedge} mpi check --nodes 2 --json {images['mpich']}")
    found = json.loads(shown[shown.index("{") : shown.rindex("}") + 1])
    assert {"pmi2", "pmix"} <= set(found["host"]["plugins"])
    levels = {verdict["mode"]: (verdict["level"], verdict["mpi_type"]) for verdict in found["verdicts"]}
    assert (levels["pmi"], found["chosen"]) == (("works", "pmi2"), "pmi")
