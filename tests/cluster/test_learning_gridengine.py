# SPDX-License-Identifier: BSD-3-Clause
"""Real trainings in containers on a real Grid Engine with two hosts: Lightning, and DDP by ranks."""

from __future__ import annotations

import re

import pytest

from tests.cluster.job_user import JobUser
from tests.cluster.learning_user import LearningUser, end_a_rank, make_learning_user, require_last_lines, require_ranks
from tests.cluster.two_hosts import cell_user

__all__ = ["cell_user"]


@pytest.fixture
def me(cell_user: JobUser) -> LearningUser:
    return make_learning_user(cell_user)


def test_gridengine_lightning(me: LearningUser) -> None:
    words = ("--contract", "lightning", "IMAGE", "python3", "train_with_lightning.py", "2", "2")
    require_ranks(me.launch(*words, tasks=2), 2, steps=8)


@pytest.mark.long  # ranks of qrsh that end: test_launch_faults_gridengine.py; what torch says: test_learning_slurm.py
def test_gridengine_training_ends_when_a_rank_is_killed(me: LearningUser) -> None:
    shown, seconds = end_a_rank(me, "--ranks", "IMAGE", "python3", "train_with_ddp.py", tasks=2)
    assert seconds < 30
    assert re.search(r"warning: rank 3 on ge0\S* was killed by SIGKILL", shown), shown
    require_last_lines(shown, "rank 3")
