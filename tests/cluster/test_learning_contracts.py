# SPDX-License-Identifier: BSD-3-Clause
"""Programs that find their ranks in other ways than torchrun's, and several launches at once, on a real Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.builders.mpi_images import make_mpi_image
from tests.cluster.job_user import leaving_nothing
from tests.cluster.learning_user import LearningUser, list_steps, make_learning_user, require_ranks
from tests.cluster.slurm_cluster import SlurmCluster
from tests.wording import assert_says

TRAIN = ("IMAGE", "python3", "train_with_ddp.py")


@pytest.fixture
def me(slurm_hosts: SlurmCluster) -> Iterator[LearningUser]:
    with leaving_nothing(slurm_hosts) as user:
        yield make_learning_user(user)


def test_contract_of_jax_needs_no_arguments(me: LearningUser) -> None:
    shown = me.launch("--contract", "jax", "IMAGE", "python3", "train_with_jax.py", tasks=2)
    require_ranks(shown, 2, steps=0 + 1 + 2 + 3)


def test_contract_of_multiproc_with_torchs_own_program(me: LearningUser) -> None:
    words = ("IMAGE", "python3", "-m", "torch.distributed.launch", "train_with_ddp.py")
    require_ranks(me.launch("--contract", "multiproc", "--processes", "2", *words), 2, steps=8)


def test_contract_of_horovod_is_mpi_and_is_checked(me: LearningUser) -> None:
    """Horovod asks MPI for its rank; without these variables it may wait for a horovodrun."""
    image = make_mpi_image(me.me.user, "mpich")
    show = 'echo "rank $PMI_RANK: $HOROVOD_CONTROLLER $HOROVOD_CPU_OPERATIONS"'
    own = ("--env", "UCX_TLS=tcp,self")  # UCX takes virtual hosts of one kernel for one host
    shown = me.finish(me.submit("-v", "--contract", "horovod", *own, str(image), "sh", "-c", show, tasks=2))
    assert_says(shown, "launch/world-check-ranks-found-each", 4)
    assert sorted(re.findall(r"rank \d: .*", shown)) == [f"rank {rank}: mpi mpi" for rank in range(4)]


def test_launches_at_once_meet_at_different_ports(me: LearningUser) -> None:
    """Two jobs on the same nodes, one of them with two launches."""
    one = me.launch_words("-v", "--ranks", *TRAIN)
    both = me.launch_words("-v", "--ranks", "--launcher-option=--overlap", *TRAIN)
    jobs = [me.submit_line(one), me.submit_line(f"{both} & {both} & wait")]
    shown = "".join(map(me.finish, jobs))
    ends, starts = ([me.me.status(job)[field] for job in jobs] for field in ("ended", "started"))
    assert max(starts) < min(ends), "they ran at the same time"
    assert len(set(re.findall(r"gpu01:\d+: ranks meet", shown))) == 3, shown
    assert list_steps(re.findall("rank .* steps", shown)) == [16] * 6
