# SPDX-License-Identifier: BSD-3-Clause
"""`kedge launch` on a real Grid Engine with two hosts: one process per node by `qrsh -inherit`, no MPI on the host."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster.daemons import wait_until
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import HOSTILE, JobUser, leaving_nothing
from tests.cluster.test_launch_slurm import LONG, SHOW, list_sleepers

PROFILE = """\
title = "two hosts"
scheduler = "gridengine"
[options]
mpi_environment = "ppn{tasks}"
"""
TWO = ("-N", "2", "--tasks-per-node", "2", "-t", "5m")


@pytest.fixture
def me(gridengine: GridEngineCell) -> Iterator[JobUser]:
    with leaving_nothing(gridengine) as user:
        user.write("config/kedge/sites/cell.toml", PROFILE)
        user = user.with_environment(KEDGE_SITE="cell", XDG_CONFIG_HOME=str(user.folder / "config"))
        user.take_tools()
        yield user


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
