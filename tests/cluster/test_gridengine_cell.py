# SPDX-License-Identifier: BSD-3-Clause
"""The Grid Engine that other tests use is a real one: it refuses like that of ABCI, and leaves nothing."""

from __future__ import annotations

import pytest

from tests.cluster.daemons import processes_of, wait_until
from tests.cluster.gridengine_cell import GROUP, GridEngineCell, GridEngineOptions
from tests.cluster.users import ClusterUser
from tests.requirements import require_root


def submit(user: ClusterUser, body: str, *options: str) -> str:
    words = ("qsub", "-terse", "-cwd", "-j", "y", "-N", "job", *options)
    return user.read_program(*words, stdin=f"#!/bin/bash\n{body}\n").strip()


def test_gridengine_cell_refuses_like_abci(gridengine_abci: GridEngineCell) -> None:
    for options, sentence in (
        ("-l rt_F=1", 'project "alice" does not exist'),
        (f"-g {GROUP}", "Resource type is not specified"),
        (f"-g {GROUP} -l rt_G.small=2", "can only be 1"),
    ):
        done = gridengine_abci.user().run_program("qsub", *options.split(), stdin="true\n")
        assert (done.returncode != 0, sentence in done.stderr) == (True, True), done.stderr


def test_gridengine_cell_has_resource_types(gridengine_abci: GridEngineCell) -> None:
    user = gridengine_abci.user()
    body = "echo $NHOSTS $NSLOTS; wc -l < $SGE_JOB_HOSTLIST; test -d $SGE_LOCALDIR"
    kinds = {"rt_F=2": (2, 16), "rt_F=1": (1, 8), "rt_G.small=1": (1, 1), "rt_C.large=1": (1, 4)}
    jobs = {kind: submit(user, body, "-g", GROUP, "-l", kind, "-l", "h_rt=0:1:0") for kind in kinds}
    for kind, (hosts, slots) in kinds.items():
        account = gridengine_abci.wait_for_end(jobs[kind])
        assert (account["project"], account["exit_status"]) == (GROUP, "0")
        shown = (user.home / f"job.o{jobs[kind]}").read_text().splitlines()
        assert shown == [f"{hosts} {slots}", f"{hosts}"], kind


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
