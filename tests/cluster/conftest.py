# SPDX-License-Identifier: BSD-3-Clause
"""Clusters that tests share: each starts when the first test of a run (of a worker, with xdist) asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.gridengine_cell import GridEngineCell, GridEngineOptions
from tests.cluster.slurm_cluster import TACC, SlurmCluster, SlurmOptions
from tests.requirements import require_root


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """Two nodes of four GPUs, memory limits enforced, no accounting: sacct fails here."""
    require_root()
    with SlurmCluster(SlurmOptions(enforce_memory=True)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_accounting() -> Iterator[SlurmCluster]:
    """With slurmdbd: sacct works, accounts are checked, and squeue forgets jobs within seconds."""
    require_root()
    with SlurmCluster(SlurmOptions(accounting=True, min_job_age=2)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_forgetful() -> Iterator[SlurmCluster]:
    """Without accounting, and jobs that have ended are forgotten within seconds: nobody knows what became of them."""
    require_root()
    with SlurmCluster(SlurmOptions(min_job_age=2)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_tacc() -> Iterator[SlurmCluster]:
    """Refuses what TACC refuses, and has queues of its names."""
    require_root()
    queues = ("normal", "development", "rtx", "rtx-dev", "gpu-a100", "gpu-a100-dev", "gpu-a100-small", "gh", "gh-dev")
    with SlurmCluster(SlurmOptions(lua=TACC, partitions=queues)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_memory() -> Iterator[SlurmCluster]:
    """The kernel ends what uses more memory than it asked for."""
    require_root()
    with SlurmCluster(SlurmOptions(nodes=1, kernel_memory=True)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_hosts() -> Iterator[SlurmCluster]:
    """Hosts gpu01 and gpu02 and the login node head, which know each other by these names."""
    require_root()
    with SlurmCluster(SlurmOptions(virtual_hosts=True)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_three_hosts() -> Iterator[SlurmCluster]:
    """Like slurm_hosts, with gpu03."""
    require_root()
    with SlurmCluster(SlurmOptions(nodes=3, virtual_hosts=True)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def gridengine() -> Iterator[GridEngineCell]:
    """Hosts ge01 and ge02 and the login node head."""
    require_root()
    with GridEngineCell() as cell:
        yield cell


@pytest.fixture(scope="session")
def gridengine_abci() -> Iterator[GridEngineCell]:
    """Plays ABCI 2.0: jobs name a resource type and, with -g, the group that pays."""
    require_root()
    with GridEngineCell(GridEngineOptions(abci=True)) as cell:
        yield cell
