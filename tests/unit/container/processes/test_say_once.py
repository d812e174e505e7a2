# SPDX-License-Identifier: BSD-3-Clause
"""What one of many says, and with whom a rank shares a container or builds one of its own where it cannot join."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from pathlib import Path

import pytest

from kedge.base.rank_variables import LAUNCH_NAMES, OWN_LAUNCH
from kedge.cluster.ranks import Rank, own_variables
from kedge.container.environment.mpi_rank_flags import find_size
from kedge.container.options import RunOptions
from kedge.container.processes import rank_sharing, say_once
from kedge.container.processes.rank_sharing import Sharing, find_launch, has_companions, make_key
from kedge.container.processes.say_once import find_scope, say_first
from kedge.errors import InstanceProblem
from kedge.system import libc
from kedge.system.libc import PR_SET_DUMPABLE
from kedge.system.spawn import fork_process, start_of
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


USER = 1507


def read_dumpable() -> bool:
    """Whether others may look: the kernel gives the files of a process that hides to root."""
    return Path("/proc/self/environ").stat().st_uid == USER


@pytest.fixture
def own_directory():
    """A directory that the user can reach: pytest's are root's alone."""
    if os.getuid() != 0:
        pytest.skip("root alone can change its user, and so see whose files a process that hides has")
    with tempfile.TemporaryDirectory(prefix="kedge-sharing-") as name:
        os.chown(name, USER, USER)
        yield Path(name)


def test_rank_hides_before_it_joins_and_shows_itself_where_it_cannot(own_directory, monkeypatch) -> None:
    seen: list[bool] = []

    def refuse(pid: int, **_: object) -> bool:
        seen.append(read_dumpable())
        raise InstanceProblem(f"process {pid} has ended")

    monkeypatch.setattr(rank_sharing, "join_namespaces", refuse)
    monkeypatch.setattr(rank_sharing, "find_private_directory", lambda: str(own_directory))
    child = fork_process()
    if child == 0:
        status = 1
        try:
            os.setgid(USER)
            os.setuid(USER)
            libc.control_process(PR_SET_DUMPABLE, 1)
            parent = os.getppid()
            member = [str(parent), str(start_of(parent)), "0", ""]
            monkeypatch.setattr(rank_sharing, "_read_members", lambda _: [member])
            monkeypatch.setattr(rank_sharing, "_await_program", lambda *_: None)
            is_inside = Sharing(is_hidden=True).enter_or_build("key")
            status = int((is_inside, seen, read_dumpable()) != (False, [False], True))
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_ranks_of_one_launch_share_by_its_name() -> None:
    ranks = [own_variables(Rank(number, 4, number % 2, 2, number // 2, 2)) | {OWN_LAUNCH: "one"} for number in range(2)]
    keys = {make_key(RunOptions(), "image", environ, "/work") for environ in ranks}
    assert len(keys) == 1, "their own numbers do not shape the container"
    other = make_key(RunOptions(), "image", ranks[0] | {OWN_LAUNCH: "two"}, "/work")
    assert other not in keys
    assert all(map(has_companions, ranks))
    assert not has_companions(own_variables(Rank(0, 2, 0, 1, 0, 2)))
    environ = {"MPI_LOCALRANKID": "0", "PMI_RANK": "0", OWN_LAUNCH: "one"}
    assert find_launch(environ) == f"{OWN_LAUNCH}=one"
