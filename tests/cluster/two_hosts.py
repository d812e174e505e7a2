# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures: an ordinary user of two hosts, with an image of small programs; `me = slurm_user` where it is wanted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster

TWO = ("-N", "2", "--tasks-per-node", "2", "-t", "5m")
PROFILE = """\
title = "two hosts"
scheduler = "gridengine"
[options]
mpi_environment = "ppn{tasks}"
"""


def settle(user: JobUser) -> JobUser:
    """The user of a Grid Engine, with a profile of it."""
    user.write("config/kedge/sites/cell.toml", PROFILE)
    user.take_tools()
    return user.with_environment(KEDGE_SITE="cell", XDG_CONFIG_HOME=str(user.folder / "config"))


@pytest.fixture
def slurm_user(slurm_hosts: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_hosts) as user:
        user.take_tools()
        yield user


@pytest.fixture
def cell_user(gridengine: GridEngineCell) -> Iterator[JobUser]:
    with leaving_nothing(gridengine) as user:
        yield settle(user)
