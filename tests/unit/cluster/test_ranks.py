# SPDX-License-Identifier: BSD-3-Clause
"""Every launcher's variables tell which rank a process is; what it does not tell follows from the layout."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.allocation import AllocatedNode
from kedge.cluster.ranks import Rank, find_launcher, find_rank, own_variables
from kedge.errors import LaunchRefused
from kedge.launch.plan import LaunchShape
from tests.builders.recorded_jobs import GRID_ENGINE, SLURM, read_record
from tests.builders.rows import each_row, with_rows


@with_rows(
    *(("task_gres", "srun", Rank(3, 4, 1, 2, 1, 2)), ("task_uneven", "srun", Rank(4, 5, 0, 1, 2, 3))),
    *(("task_pmi2", "srun", Rank(3, 4, 0, 1, 1, 2)), ("task_pmix", "srun", Rank(3, 4, 0, 1, 1, 2))),
    ("task_on_some_nodes", "srun", Rank(1, 2, 0, 1, 1, 2)),
    ("shell_in_job", "srun", Rank(0, 1, 0, 1, 0, 1)),
)
def test_ranks_of_srun(name: str, launcher: str, rank: Rank) -> None:
    environ = read_record(SLURM[name])
    assert (find_launcher(environ), find_rank(environ)) == (launcher, rank)


@each_row("name", ["batch", "batch_uneven", "gres", "salloc", "array"])
def test_ranks_batch_step_and_login_node_are_none(name: str) -> None:
    """The batch step has SLURM_PROCID=0 and SLURM_NTASKS=6: it is no rank all the same."""
    assert find_rank(read_record(SLURM[name])) is None


@with_rows(
    (SLURM["mpirun"], "open_mpi", (3, 1), Rank(3, 4, 0, 1, 1, 2)),
    (SLURM["hydra"], "hydra", (3, 1), Rank(3, 4, 0, 1, 1, 2)),
    (GRID_ENGINE["mpirun"], "open_mpi", (2, 2), Rank(3, 4, 1, 2, 1, 2)),
    (GRID_ENGINE["hydra"], "hydra", (2, 2), Rank(3, 4, 1, 2, 1, 2)),
)
def test_ranks_of_mpi_launchers_within_jobs(environ: str, launcher: str, layout: tuple[int, ...], rank: Rank) -> None:
    variables = read_record(environ)
    assert (find_launcher(variables), find_rank(variables, layout)) == (launcher, rank)
    without = find_rank(variables)
    assert (without.node_rank, without.node_count) == (-1, -1), "not guessed: a wrong one is worse"


@with_rows(
    ("MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1", "mvapich"),
    ("PMI_RANK=3 PMI_SIZE=4 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2 PALS_APID=x", "pals"),
    ("PMI_RANK=3 PMI_SIZE=4", "pals"),
    ("FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=2", "flux_run"),
    ("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=3 PMIX_NAMESPACE=prterun-a@1", "open_mpi"),
)
def test_ranks_of_others(variables: str, launcher: str) -> None:
    environ = dict(word.split("=") for word in variables.split())
    assert (find_launcher(environ), find_rank(environ, (2, 2))) == (launcher, Rank(3, 4, 1, 2, 1, 2))


def test_ranks_on_one_node_or_dealt_out_otherwise() -> None:
    environ = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert find_rank(environ) == Rank(1, 2, 1, 2, 0, 1)
    assert find_rank({"RANK": "1", "WORLD_SIZE": "2"}) is None
    assert find_launcher({}) == ""
    with pytest.raises(LaunchRefused, match="started 4 ranks, and 6 were asked for"):
        find_rank(read_record(SLURM["task_gres"]), (3, 3))
    # Asked for 2 and 3, it started 3 and 2: the rank's own numbers are right.
    counts = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_TASKS_PER_NODE": "3,2"}
    place = {"SLURM_PROCID": "2", "SLURM_LOCALID": "2", "SLURM_NODEID": "0", "SLURM_STEP_NUM_NODES": "2"}
    assert find_rank(counts | place, (2, 3)) == Rank(2, 5, 2, 3, 0, 2)
    environ = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "5"}
    environ |= {"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    assert find_rank(environ, (4, 1)) == Rank(3, 5, 3, 4, 0, 2)
    with pytest.raises(LaunchRefused, match="number 3 of 4 on its node, and kedge asked for number 0 of 2"):
        find_rank(environ, (3, 2))


@each_row("rank", ["4", "x", "-1", "99999999999999999999", "²", "1e3"])
def test_ranks_refuse_numbers_that_cannot_be(rank: str) -> None:
    with pytest.raises(LaunchRefused, match="rank"):
        find_rank({"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "4"})


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_ranks_of_our_own_both_ways(tasks: list[int]) -> None:
    """Also below srun: what kedge set is nearer than what was there before."""
    shape = LaunchShape(tuple(AllocatedNode(f"n{index}") for index in range(len(tasks))), tuple(tasks))
    ranks = list(shape.list_ranks())
    assert [rank.rank for rank in ranks] == list(range(sum(tasks)))
    for rank in ranks:
        environ = read_record(SLURM["task_gres"]) | own_variables(rank)
        assert find_rank(environ) == find_rank(environ, tasks) == rank
        blocks = {"PMI_RANK": str(rank.rank), "PMI_SIZE": str(rank.size)}
        assert find_rank(blocks, tasks) == rank
