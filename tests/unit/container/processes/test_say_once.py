# SPDX-License-Identifier: BSD-3-Clause
"""What one of many says: which of them have a job, a launch or a session in common."""

from __future__ import annotations

import os
import secrets
import time

import pytest

from kedge.base.rank_variables import LAUNCH_NAMES
from kedge.container.environment.mpi_rank_flags import find_size
from kedge.container.processes import rank_sharing, say_once
from kedge.container.processes.say_once import find_scope, say_first
from tests.builders.rows import with_rows


@pytest.fixture
def place(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rank_sharing, "_PLACES", (str(tmp_path),))
    return tmp_path / f"kedge-{os.getuid()}/said"


@pytest.mark.parametrize("is_shim", [False, True])
@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KEDGE_LOCAL_JOB_ID", *LAUNCH_NAMES])
def test_said_once_in_a_job(place, name: str, is_shim: bool) -> None:
    environ = {name: "1"}
    assert say_first("text", environ, os.getuid(), is_shim=is_shim)
    assert not say_first("text", environ, os.getuid(), is_shim=is_shim)
    assert say_first("another text", environ, os.getuid(), is_shim=is_shim)
    assert say_first("text", {name: "2"}, os.getuid(), is_shim=is_shim)
    assert len(list(place.iterdir())) == 3


def test_said_again_outside_of_jobs_but_once_through_a_shim(place) -> None:
    assert [say_first("text", {}, os.getuid()) for _ in range(2)] == [True, True]
    assert not place.exists()
    assert [say_first("text", {}, os.getuid(), is_shim=True) for _ in range(2)] == [True, False]
    assert not say_first("text", {"SLURM_JOB_ID": "1", "SLURM_PROCID": "3"}, os.getuid())
    assert say_first("text", {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0"}, os.getuid())


def test_said_again_where_nothing_can_be_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_sharing, "_PLACES", ("/proc/nowhere",))
    environ = {"SLURM_JOB_ID": secrets.token_hex(8)}
    assert [say_first("text", environ, os.getuid()) for _ in range(2)] == [True, True]


def test_said_long_ago_is_forgotten(place) -> None:
    assert say_first("old", {"SLURM_JOB_ID": "1"}, os.getuid())
    (note,) = place.iterdir()
    os.utime(note, (0, time.time() - say_once._OLD - 60))
    assert say_first("new", {"SLURM_JOB_ID": "1"}, os.getuid())
    assert note.name not in {each.name for each in place.iterdir()}


def test_said_scopes_are_tasks_of_an_array_and_launches_of_hydra(place) -> None:
    tasks = [{"SGE_ROOT": "/sge", "JOB_ID": "7", "SGE_TASK_ID": str(task)} for task in (1, 2)]
    assert len({find_scope(each, is_shim=False) for each in tasks}) == 2
    assert find_scope({"JOB_ID": "a user's own"}, is_shim=False) == ""
    # Nothing names it but the parent of its ranks, which is not the session's.
    scope = find_scope({"MPI_LOCALRANKID": "0", "PMI_RANK": "0"}, is_shim=True)
    assert scope.startswith("parent ")
    assert scope != find_scope({}, is_shim=True)


@with_rows(
    ({"OMPI_COMM_WORLD_SIZE": "8"}, ("OMPI_COMM_WORLD_SIZE", 8)),
    ({"PMI_SIZE": "2", "PMI_RANK": "1"}, ("PMI_SIZE", 2)),
    ({"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "16"}, ("PMIX_RANK", 16)),
    ({"SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": "0"}, ("", 0)),  # srun without MPI
    ({"OMPI_COMM_WORLD_SIZE": "many"}, ("", 0)),
    ({}, ("", 0)),
)
def test_size_of_an_mpi_launch(environ: dict[str, str], size: tuple[str, int]) -> None:
    assert find_size(environ) == size
