# SPDX-License-Identifier: BSD-3-Clause
"""Images of a launch on two hosts: each node unpacks one once, whoever needs it, and GPUs are not masked."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster

TWO = ("-N", "2", "--tasks-per-node", "3", "-t", "5m")
SHOW = 'echo "on $(hostname): $(readlink /proc/self/ns/mnt) $LOCAL_RANK"; sleep 2'


@pytest.fixture
def me(slurm_hosts: SlurmCluster) -> Iterator[JobUser]:
    assert slurm_hosts.hosts is not None
    with leaving_nothing(slurm_hosts) as user:
        user.take_tools()
        user.read("convert", "tools.sif", "oci-archive:tools.tar")
        yield user


def launch(me: JobUser, *words: str, variables: str = "", options: tuple[str, ...] = ()) -> str:
    """What `kedge launch` prints as the script of a job, errors included."""
    line = shlex.join([*me.user.program, "launch", "--ranks", *words])
    return me.run_shell(f"{variables} {line} 2>&1", *TWO, *options)


def test_an_image_by_reference_is_unpacked_once_on_each_node(me: JobUser, slurm_hosts: SlurmCluster) -> None:
    assert slurm_hosts.hosts is not None
    place = slurm_hosts.hosts.local_disk / f"images-{me.folder.name}"
    image = f"oci-archive:{me.folder}/tools.tar"
    for times in (1, 0):
        shown = launch(me, image, "sh", "-c", SHOW, variables=f"KEDGE_NODEDIR={place}")
        assert shown.count("flattening layers") == 2 * times, shown
        for node in ("gpu01", "gpu02"):
            ranks = [line.split() for line in shown.splitlines() if line.startswith(f"on {node}: ")]
            assert len(ranks) == 3, shown
            assert len({words[2] for words in ranks}) == 1, "one container for all ranks of a node"
            assert len(slurm_hosts.hosts.run(node, "ls", f"{place}/names").split()) == 1


@pytest.mark.parametrize("asked", ["--gpus-per-task=1", "--gpus-per-node=2"])
def test_every_rank_sees_all_gpus_of_its_node(me: JobUser, asked: str) -> None:
    """LOCAL_RANK counts them: where srun shows each task one GPU, all but the first would ask for one that is not."""
    show = 'echo "rank $LOCAL_RANK sees $CUDA_VISIBLE_DEVICES"'
    options = ("--tasks-per-node", "2", f"--directive={asked}")
    shown = launch(me, "tools.sif", "sh", "-c", show, options=options)
    assert sorted(line for line in shown.splitlines() if line.startswith("rank")) == [
        *["rank 0 sees 0,1"] * 2,
        *["rank 1 sees 0,1"] * 2,
    ], shown
