# SPDX-License-Identifier: BSD-3-Clause
"""Real trainings in containers on a real Slurm with two hosts: torch's DDP by torchrun and by ranks, and Lightning."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster.job_user import leaving_nothing
from tests.cluster.learning_user import (
    LearningUser,
    end_a_rank,
    list_steps,
    make_learning_user,
    require_last_lines,
    require_ranks,
)
from tests.cluster.slurm_cluster import SlurmCluster


@pytest.fixture
def me(slurm_hosts: SlurmCluster) -> Iterator[LearningUser]:
    with leaving_nothing(slurm_hosts) as user:
        yield make_learning_user(user)


def test_slurm_torchrun_divides_the_work(me: LearningUser) -> None:
    """1024 items in batches of 32 are 32 steps for one process, 16 for two (as below), 8 for four."""
    require_ranks(me.launch("--torchrun", "--processes", "2", "IMAGE", "train_with_ddp.py"), 2, steps=8)


def test_slurm_pytorch_without_the_program_torchrun_trains_on_two_nodes(me: LearningUser) -> None:
    """As images from before PyTorch 1.10 are: with the module that torchrun is a name for."""
    program = me.image / "usr/local/bin/torchrun"
    program.rename(program.with_name("hidden"))
    try:
        shown = me.finish(me.submit("-v", "--torchrun", "--processes", "1", "IMAGE", "train_with_ddp.py"))
    finally:
        program.with_name("hidden").rename(program)
    assert "python3 -m torch.distributed.run starts the processes of each node: PyTorch 2" in shown
    require_ranks(sorted(line for line in shown.splitlines() if line.startswith("rank ")), 1, steps=16)


def test_slurm_lightning(me: LearningUser) -> None:
    """Lightning starts the processes of a node itself; with a task for each of them: on Grid Engine."""
    words = ("--contract", "lightning", "IMAGE", "python3", "train_with_lightning.py", "2", "2")
    require_ranks(me.launch(*words), 2, steps=8)


def test_slurm_elastic_torchrun_trains_on_two_nodes(me: LearningUser) -> None:
    shown = me.launch("--contract", "elastic", "--processes", "1", "IMAGE", "train_with_ddp.py")
    assert list_steps(shown) == [16] * 2  # who has which rank is c10d's to choose


def test_slurm_training_ends_when_a_process_of_torchrun_is_killed(me: LearningUser) -> None:
    """torchrun itself takes some seconds to notice."""
    shown, seconds = end_a_rank(me, "--torchrun", "--processes", "1", "IMAGE", "train_with_ddp.py")
    assert seconds < 40
    ours = re.search(r"warning: torchrun on gpu02\S* failed with status 1; the other ranks were ended", shown)
    assert ours, shown
    assert "Signal 9 (SIGKILL) received by PID" in shown[: ours.start()]
    assert "Received 15 death signal" not in shown[: ours.start()], "what the others say comes later"


def test_slurm_training_ends_when_a_rank_is_killed(me: LearningUser) -> None:
    shown, seconds = end_a_rank(me, "--ranks", "IMAGE", "python3", "train_with_ddp.py")
    assert seconds < 30
    assert re.search(r"warning: rank 1 on gpu02\S* was killed by SIGKILL", shown), shown
    require_last_lines(shown, "rank 1")
