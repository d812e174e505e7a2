# SPDX-License-Identifier: BSD-3-Clause
"""Ranks on a real Slurm are told interface, threads and an address of the first node that their own node knows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster

SHOW = 'echo "rank $RANK: $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $OMP_NUM_THREADS $MASTER_ADDR $(hostname)"'
TWO = ("--ranks", "-N", "2", "--tasks-per-node", "2", "--cpus-per-task", "2", "-t", "5m")


@pytest.fixture
def me(slurm_hosts: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_hosts) as user:
        user.take_tools()
        yield user


def read_ranks(shown: str) -> list[str]:
    return sorted(line.partition(": ")[2] for line in shown.splitlines() if line.startswith("rank"))


def test_network_of_ranks_on_two_nodes(me: JobUser) -> None:
    shown = read_ranks(me.run_job(*TWO, "tools.sif", "sh", "-c", SHOW))
    assert shown == [f"=eth0 eth0 2 gpu01 {host}" for host in ("gpu01", "gpu01", "gpu02", "gpu02")]


def test_network_that_the_user_chose_stays(me: JobUser) -> None:
    options = ("--env", "NCCL_SOCKET_IFNAME=^docker0", "--env", "OMP_NUM_THREADS=1")
    shown = read_ranks(me.run_job(*TWO, *options, "tools.sif", "sh", "-c", SHOW))
    assert [line.split()[:3] for line in shown] == [["^docker0", "eth0", "1"]] * 4


def test_first_node_whose_name_no_node_knows(me: JobUser) -> None:
    """The profile's suffix makes names that nobody has: ranks meet at the first node's address."""
    profile = 'title = "no names"\nscheduler = "slurm"\naddress_suffix = "-fast"\n'
    me.write("config/kedge/sites/nameless.toml", profile)
    there = me.with_environment(XDG_CONFIG_HOME=str(me.folder / "config"), KEDGE_SITE="nameless")
    shown = read_ranks(there.run_job(*TWO, "tools.sif", "sh", "-c", SHOW))
    addresses = {line.split()[3] for line in shown}
    assert len(addresses) == 1
    assert addresses.pop().startswith("10."), shown
