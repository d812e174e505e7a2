# SPDX-License-Identifier: BSD-3-Clause
"""The words of every launcher, for a launch and for a script."""

from __future__ import annotations

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import LAUNCHERS
from kedge.cluster.launchers.known import PROGRAMS, find_launch_program, list_launchers
from kedge.cluster.launchers.open_mpi import list_settings
from kedge.cluster.launchers.program import ShellText, StartRequest, flatten, glue
from kedge.errors import LaunchRefused
from tests.builders.rows import each_row, with_rows

EVEN = StartRequest(4, 2, 2, ends_together=True, is_labelled=True)
UNEVEN = StartRequest(3, 2, 0, hosts=(("a", 2), ("b", 1)), ends_together=True, is_labelled=True)


def list_words(name: str, request: StartRequest, family: str = "") -> str:
    return " ".join(flatten(find_launch_program(name, family).list_words(request)))


@with_rows(
    ("srun", "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --kill-on-bad-exit=1 --label"),
    ("ibrun", "ibrun -n 4"),
    ("mpirun", "mpirun -np 4 --map-by ppr:2:node --tag-output"),
    ("mpiexec", "mpiexec -n 4 -ppn 2 -prepend-rank -genvall"),
    ("local", ""),
)
def test_words_of_a_launch(name: str, words: str) -> None:
    assert list_words(name, EVEN) == words


def test_launchers_have_words_of_their_own() -> None:
    words = "mpirun -np 4 --map-by ppr:2:node --output tag-fullname"
    assert list_words("mpirun", replace(EVEN, version="5.0.7")) == words
    assert find_launch_program("mpirun", "").split_label("[prterun-vm-1@1,2]<stdout>:  x") == (2, " x")
    # Open MPI's aborts if it is started as /bin/mpirun: what is above bin becomes its prefix.
    assert list_words("mpirun", replace(EVEN, program="/bin/mpirun")).startswith("mpirun -np")
    assert list_words("mpirun", replace(EVEN, program="/opt/bin/mpirun")).startswith("/opt/bin/mpirun -np")
    assert list_words("mpirun", StartRequest(1, 1, 1, variables=("A", "B"))).endswith("-x A -x B")
    assert list_words("qrsh", StartRequest(2, 1, 2, hosts=(("ge02", 2),))) == "qrsh -inherit -V ge02"
    request = StartRequest(2, 1, 2, mpi_type="pmi2", cpus_per_task="4", options=("--overlap",), is_counted=False)
    assert list_words("srun", request) == "srun --mpi=pmi2 --cpus-per-task=4 --overlap"
    assert isinstance(glue("--cpus-per-task=", ShellText('"$N"')), ShellText)
    assert not isinstance(glue("--cpus-per-task=", "4"), ShellText)


@with_rows(
    ("srun", "", "srun --nodes=2 --ntasks=3 --kill-on-bad-exit=1 --label"),
    ("mpirun", "Open MPI", "mpirun -np 3 --host a:2,b:1 --map-by slot --tag-output"),
    ("mpirun", "MPICH", "mpiexec -n 3 -hosts a:2,b:1 -prepend-rank -genvall"),
    ("mpiexec", "Intel MPI", "mpiexec -n 3 -machine a:2,b:1 -prepend-rank -genvall"),
)
def test_words_where_nodes_differ(name: str, family: str, words: str) -> None:
    assert list_words(name, UNEVEN, family) == words


@each_row(("cpus", "is_bound"), [("", True), ("1", True), ("4", False)])
def test_open_mpi_binds_to_one_core_only_ranks_that_have_one(cpus: str, is_bound: bool) -> None:
    words = list_words("mpirun", StartRequest(2, 1, 2, cpus_per_task=cpus, is_labelled=True))
    assert ("--bind-to none" not in words) == is_bound


def test_every_launcher_that_a_job_can_name_is_there() -> None:
    assert {*PROGRAMS, "none"} == set(LAUNCHERS)
    with pytest.raises(LaunchRefused, match="does not know the launcher 'aprun'"):
        find_launch_program("aprun")
    assert list_launchers("library") == ("mpirun", "mpiexec", "orterun", "mpiexec.hydra")
    assert "pbsdsh" in list_launchers("nodes")


def test_open_mpi_starts_without_ssh_on_one_host_and_as_root() -> None:
    alone = dict(list_settings({}, is_alone=True, has_ssh=False, is_root=False))
    assert alone == {"OMPI_MCA_plm_rsh_agent": "false", "PRTE_MCA_plm_ssh_agent": "false"}
    assert not list_settings({"OMPI_MCA_plm": "isolated"}, is_alone=True, has_ssh=False, is_root=False)
    assert not list_settings({}, is_alone=False, has_ssh=False, is_root=False)
    as_root = list_settings({"PRTE_ALLOW_RUN_AS_ROOT": "1"}, is_alone=True, has_ssh=True, is_root=True)
    assert [name for name, _ in as_root] == [
        *("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"),
    ]
