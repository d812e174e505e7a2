# SPDX-License-Identifier: BSD-3-Clause
"""Bad days of `kedge launch` on a real Grid Engine with two hosts, where kedge starts the ranks by `qrsh -inherit`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster.daemons import wait_until
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.leftovers import kill_host, leaving_no_trace
from tests.cluster.test_launch_faults import SLEEP, SOON
from tests.cluster.test_launch_slurm import list_sleepers
from tests.cluster.two_hosts import TWO, settle
from tests.requirements import require_root
from tests.wording import assert_says


@pytest.fixture
def me(gridengine: GridEngineCell) -> Iterator[JobUser]:
    with leaving_nothing(gridengine) as user:
        settled = settle(user)
        with leaving_no_trace(gridengine.hosts, user.user.uid):
            yield settled


def submit(me: JobUser, program: str) -> str:
    id = me.submit("--ranks", *TWO, "tools.sif", "sh", "-c", program)
    wait_until("all ranks run", lambda: len(list_sleepers()) == 4, every=0.2)
    return id


def read_log_with(me: JobUser, id: str, words: str) -> str:
    wait_until(f"the log has: {words}", lambda: words in me.run("logs", id).stdout, every=0.5)
    return me.run("logs", id).stdout


def test_a_job_that_is_cancelled_in_the_middle(me: JobUser, gridengine: GridEngineCell) -> None:
    id = submit(me, SLEEP)
    began = time.monotonic()
    me.read("cancel", id)
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)
    wait_until("the job is gone", lambda: not gridengine.is_known(id))
    assert time.monotonic() - began < SOON


def test_a_rank_that_is_killed_for_memory(me: JobUser) -> None:
    program = f'[ $RANK = 2 ] && {{ (sleep 3; kill -9 $$) & echo "epoch 3"; }}; {SLEEP}'
    id = submit(me, program)
    logs = read_log_with(me, id, "were ended")
    assert "rank 2 on ge0" in logs, logs
    assert "was killed by SIGKILL" in logs
    assert "Traceback" not in logs
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)


def test_a_node_that_dies() -> None:
    """With its sge_execd and all that this started. The job's script is on the other host."""
    require_root()
    with GridEngineCell() as cell, leaving_nothing(cell) as user:
        me = settle(user)
        with leaving_no_trace(cell.hosts, user.user.uid) as dead:
            id = submit(me, f"echo $RANK is on $(hostname); {SLEEP}")
            first = next(name for name in cell.nodes if f"0 is on {name}" in me.run("logs", id).stdout)
            began = time.monotonic()
            dead |= set(cell.nodes) - {first}
            kill_host(cell.hosts, *dead)
            wait_until("no rank is left", lambda: not list_sleepers(), timeout=SOON)
            assert time.monotonic() - began < SOON
            logs = read_log_with(me, id, "warning: ")
            assert "Traceback" not in logs
            assert_says(logs, "launch/gone-node-connection-closed")
            cell.read("qdel", "-f", id)
