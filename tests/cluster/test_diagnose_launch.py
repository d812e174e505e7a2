# SPDX-License-Identifier: BSD-3-Clause
"""A launch over two nodes in which a rank fails: it ends with what the rank's message means, and so does `diagnose`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster

TWO = ("-N", "2", "--tasks-per-node", "2", "-t", "5m")


@pytest.fixture
def me(slurm_hosts: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_hosts) as user:
        user.take_tools()
        yield user


def test_launch_that_fails_says_why(me: JobUser) -> None:
    program = "echo start; [ $RANK = 3 ] && { cat /proc/self/status >/dev/full; exit 7; }; sleep 300"
    id = me.submit("--ranks", *TWO, "tools.sif", "sh", "-c", program)
    me.wait(id)
    output = me.run("logs", id).stdout
    assert "rank 3 on gpu02" in output
    assert "Cause: a disk is full, or a quota is used up" in output
    assert "Remedy: 'df -h DIRECTORY'" in output
    told = json.loads(me.run("--json", "diagnose", id).stdout)
    assert told["clues"][0]["name"] == "full-disk"
