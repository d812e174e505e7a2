# SPDX-License-Identifier: BSD-3-Clause
"""The Grid Engine that other tests use is a real one: it runs, refuses, ends and remembers like those of sites."""

from __future__ import annotations

import pytest

from tests.cluster.daemons import processes_of, wait_until
from tests.cluster.gridengine_cell import GROUP, SEEN_BY_QRSH, GridEngineCell, GridEngineOptions
from tests.cluster.users import ClusterUser
from tests.requirements import require_root


def submit(user: ClusterUser, body: str, *options: str) -> str:
    words = ("qsub", "-terse", "-cwd", "-j", "y", "-N", "job", *options)
    return user.read_program(*words, stdin=f"#!/bin/bash\n{body}\n").strip()


def read_output(user: ClusterUser, job: str) -> list[str]:
    return (user.home / f"job.o{job}").read_text().splitlines()


def test_gridengine_cell_runs_a_job_and_remembers_it(gridengine: GridEngineCell) -> None:
    user = gridengine.user()
    job = submit(user, "id -un; exit 5")
    assert job in user.read_program("qstat")
    account = gridengine.wait_for_end(job)
    assert (account["owner"], account["exit_status"], account["failed"]) == ("alice", "5", "0")
    assert read_output(user, job) == ["alice"]
    assert job not in user.read_program("qstat")


def test_gridengine_cell_runs_interactive_commands(gridengine: GridEngineCell) -> None:
    done = gridengine.user().run_program("qrsh", "-now", "n", f"hostname; {SEEN_BY_QRSH}; exit 7")
    assert done.returncode == 7
    assert done.stdout.strip() in gridengine.nodes


def test_gridengine_cell_deletes(gridengine: GridEngineCell) -> None:
    user = gridengine.user()
    job = submit(user, "sleep 600")
    gridengine.wait_until_running(job)
    assert gridengine.user("bob").run_program("qdel", job).returncode != 0, "of another user"
    user.read_program("qdel", job)
    assert gridengine.wait_for_end(job)["failed"].startswith("100")


def test_gridengine_cell_refuses_unknown_parallel_environments(gridengine: GridEngineCell) -> None:
    done = gridengine.user().run_program("qsub", "-pe", "nonsense", "2", stdin="true\n")
    assert "does not exist" in done.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-l", "rt_F=1"], 'project "alice" does not exist'),
        (["-g", GROUP], "Resource type is not specified"),
        (["-g", GROUP, "-l", "rt_G.small=2"], "can only be 1"),
    ],
)
def test_gridengine_cell_refuses_like_abci(gridengine_abci: GridEngineCell, options: list[str], sentence: str) -> None:
    done = gridengine_abci.user().run_program("qsub", *options, stdin="true\n")
    assert done.returncode != 0
    assert sentence in done.stderr


@pytest.mark.parametrize(
    ("kind", "hosts", "slots"), [("rt_F=2", 2, 16), ("rt_F=1", 1, 8), ("rt_G.small=1", 1, 1), ("rt_C.large=1", 1, 4)]
)
def test_gridengine_cell_has_resource_types(gridengine_abci: GridEngineCell, kind: str, hosts: int, slots: int) -> None:
    user = gridengine_abci.user()
    body = "echo $NHOSTS $NSLOTS; wc -l < $SGE_JOB_HOSTLIST; test -d $SGE_LOCALDIR"
    job = submit(user, body, "-g", GROUP, "-l", kind, "-l", "h_rt=0:1:0")
    account = gridengine_abci.wait_for_end(job)
    assert (account["project"], account["exit_status"]) == (GROUP, "0")
    assert read_output(user, job) == [f"{hosts} {slots}", f"{hosts}"]


def test_gridengine_cell_is_interactive_like_abci(gridengine_abci: GridEngineCell) -> None:
    words = ("qrsh", "-g", GROUP, "-l", "rt_F=1", "-l", "h_rt=0:1:0", "-now", "n")
    assert gridengine_abci.user().read_program(*words, f"echo $NHOSTS; {SEEN_BY_QRSH}") == "1\n"


def test_gridengine_cell_leaves_nothing_after_a_failure() -> None:
    require_root()
    cell = GridEngineCell(GridEngineOptions(hosts=1))
    with pytest.raises(ZeroDivisionError):
        fail_with_a_running_job(cell)
    wait_until("nothing is left", lambda: not cell.folder.exists() and not processes_of(cell.folder))


def fail_with_a_running_job(cell: GridEngineCell) -> None:
    with cell:
        cell.wait_until_running(submit(cell.user(), "sleep 600"))
        # qstat says that it runs before its program is there
        wait_until("master, host, shepherd and program are there", lambda: len(processes_of(cell.folder)) > 3)
        raise ZeroDivisionError
