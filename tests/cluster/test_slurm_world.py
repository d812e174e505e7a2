# SPDX-License-Identifier: BSD-3-Clause
"""Which MPI finds its ranks under which PMI of Slurm: the pairs that work start, and what the others do.

MPICH without its PMI says nothing and ends with 0: every process believes to be alone. `kedge launch` refuses such
pairs, and says why: test_launch_mpi_modes.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kedge.launch.check_world import AskedWorld, compare_world
from kedge.launch.probe.answers import read_answers
from tests.builders.mpi_images import installed_title, make_mpi_image, probe_rank
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.requirements import require_program

FAMILIES = ("openmpi", "mpich")
SIZE = ("-N", "2", "-n", "4")


@pytest.fixture(scope="module")
def me(slurm_hosts: SlurmCluster) -> JobUser:
    require_program("salloc")
    # UCX takes virtual hosts of one kernel for one host, and would share memory between them
    return make_job_user(slurm_hosts, UCX_TLS="tcp,self")


@pytest.fixture(scope="module")
def images(me: JobUser) -> dict[str, Path]:
    return {family: make_mpi_image(me.user, family) for family in FAMILIES}


def allocate(me: JobUser, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program on the login node, with four tasks on two nodes at its disposal."""
    return me.user.run_program("salloc", "--quiet", *SIZE, "--mem-per-cpu=200", *words, cwd=me.folder)


@pytest.mark.parametrize(
    ("family", "kind", "problem"),
    [
        ("mpich", "pmix", "singletons"),  # with none it is the same
        ("openmpi", "none", "silent"),  # it says so itself, and ends with an error
        ("mpich", "pmi2", ""),
    ],
)
def test_slurm_world_as_the_probe_sees_it(
    me: JobUser, images: dict[str, Path], family: str, kind: str, problem: str
) -> None:
    """Without anything that looks at variables: MPI itself is asked.

    What counts is said before MPI_Finalize, from which MPICH before 4.2 now and then does not come back over UCX.
    `launch` ends such a check, and so does this test.
    """
    done = me.user.run_program(
        *("timeout", "60", "srun", *SIZE, "--mem-per-cpu=200", f"--mpi={kind}"),
        *probe_rank(images[family], "world"),
        cwd=me.folder,
    )
    asked = AskedWorld(4, ("gpu01", "gpu01", "gpu02", "gpu02"), "srun", kind, installed_title(family))
    found = compare_world(asked, read_answers(done.stdout))
    if problem == "silent" and installed_title(family) > "Open MPI 5":
        problem = "singletons"  # since 5 it says nothing, as MPICH does
    assert (found.kind if found else "") == problem, done.stdout + done.stderr
    if problem == "singletons":
        assert found is not None
        assert found.hint == f"give --mpi-type {'pmi2' if family == 'mpich' else 'pmix'}"
        assert done.returncode == 0, "silent, as it is"
