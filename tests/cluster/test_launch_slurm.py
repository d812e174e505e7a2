# SPDX-License-Identifier: BSD-3-Clause
"""`kedge launch` on a real Slurm with two hosts: ranks on all nodes, and a prompt end whatever happens."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.daemons import wait_until
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster

TWO = ("-N", "2", "--tasks-per-node", "2", "-t", "5m")
SHOW = 'echo "$RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK $(hostname) $MASTER_ADDR"'
LONG = "987.5"  # seconds that a rank would sleep


@pytest.fixture
def me(slurm_hosts: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_hosts) as user:
        user.take_tools()
        yield user


def list_sleepers(seconds: str = LONG) -> list[str]:
    """Processes of ranks that sleep."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(place.parent.name)
    return found


def test_ranks_know_who_they_are_on_both_nodes(me: JobUser) -> None:
    shown = me.run_job("--ranks", *TWO, "tools.sif", "sh", "-c", SHOW)
    lines = sorted(line for line in shown.splitlines() if "/4" in line)
    assert lines == [
        "0/4 local 0/2 node 0 gpu01 gpu01",
        "1/4 local 1/2 node 0 gpu01 gpu01",
        "2/4 local 0/2 node 1 gpu02 gpu01",
        "3/4 local 1/2 node 1 gpu02 gpu01",
    ]


def test_the_first_rank_that_fails_ends_all_and_its_lines_come_first(me: JobUser) -> None:
    program = f'echo start $RANK; [ $RANK = 3 ] && {{ sleep 1; echo "no such data" >&2; exit 7; }}; sleep {LONG}'
    began = time.monotonic()
    id = me.submit("--ranks", *TWO, "tools.sif", "sh", "-c", program)
    me.wait(id)
    assert time.monotonic() - began < 40
    task = me.status(id)
    assert (task["state"], task["exit_code"]) == ("failed", 7), task
    logs = me.run("logs", id).stdout
    assert "rank 3 on gpu02 failed with status 7" in logs, logs
    assert logs.index("no such data") < logs.index("srun: error")
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)


def test_a_launch_that_is_terminated_ends_its_ranks(me: JobUser) -> None:
    kedge = " ".join(me.user.program)
    line = f"{kedge} launch --ranks tools.sif sh -c 'exec sleep {LONG}' & sleep 4; kill $!; wait $!; echo ended $?"
    began = time.monotonic()
    shown = me.run_job(*TWO, "-", "sh", "-c", line)
    assert "ended 143" in shown, shown
    assert time.monotonic() - began < 60
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)


def test_a_dry_run_shows_every_rank(me: JobUser) -> None:
    kedge = " ".join(me.user.program)
    shown = me.run_job(*TWO, "-", "sh", "-c", f"{kedge} launch --dry-run --json --ranks tools.sif true")
    plan = json.loads(shown)
    assert plan["launcher"] == "srun"
    assert [rank["environment"]["RANK"] for rank in plan["ranks"]] == ["0", "1", "2", "3"]
    assert [rank["host"] for rank in plan["ranks"]] == ["gpu01", "gpu01", "gpu02", "gpu02"]
    assert re.search(r"srun --nodes=2 --ntasks=4 --ntasks-per-node=2", " ".join(plan["processes"][0]["argv"]))


def test_ranks_that_ignore_signals_end_within_seconds_of_the_launch(me: JobUser) -> None:
    stubborn = "986.5"
    kedge = " ".join(me.user.program)
    rank = f'trap "" TERM INT; exec sleep {stubborn}'
    id = me.submit_shell(f"{kedge} launch --ranks tools.sif sh -c '{rank}' & wait $!; sleep 60", *TWO)
    wait_until("all ranks run", lambda: len(list_sleepers(stubborn)) == 4, every=0.2)
    launch = next(place.parent for place in Path("/proc").glob("[0-9]*/cmdline") if _is_launch(place, stubborn))
    began = time.monotonic()
    os.kill(int(launch.name), signal.SIGTERM)
    wait_until("no rank is left", lambda: not list_sleepers(stubborn), every=0.2)
    assert time.monotonic() - began < 12
    assert me.status(id)["state"] == "running"
    me.read("cancel", id)


def _is_launch(cmdline: Path, seconds: str) -> bool:
    try:
        words = cmdline.read_bytes().split(b"\0")
    except OSError:
        return False
    return words[3:4] == [b"launch"] and seconds.encode() in words[-2]
