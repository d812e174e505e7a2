# SPDX-License-Identifier: BSD-3-Clause
"""The words before a command that runs on many nodes: the number of torchrun's processes."""

from __future__ import annotations

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import Job, Parallel
from kedge.cluster.job_rules import check_job
from kedge.cluster.schedulers.launch_words import kedge_launch_words, needs_master, torchrun_words
from kedge.cluster.schedulers.slurm.write_script import DIALECT
from kedge.cluster.site import Site
from kedge.errors import InvalidJob
from tests.builders.rows import each_row

SITE = Site("generic-slurm", "Slurm", "slurm", gpu_directive="--gpus-per-node={count}")
JOB = Job(name="train", image="/a.sif", command=("train.py",), parallel=Parallel.TORCHRUN, gpus_per_node=4)


@each_row(("processes", "words"), [(None, []), (2, ["--processes 2"])])
def test_launch_words_have_the_processes_of_the_job(processes: int | None, words: list[str]) -> None:
    job = replace(JOB, processes=processes)
    assert kedge_launch_words(job, SITE, DIALECT)[3:] == words
    assert f"--nproc_per_node={processes or 4}" in torchrun_words(job, SITE, DIALECT, ["torchrun"])


RUN, LAUNCH = ["python", "-m", "torch.distributed.run"], ["python", "-m", "torch.distributed.launch", "--use_env"]


def test_an_older_pytorch_is_started_by_what_it_has() -> None:
    assert torchrun_words(JOB, SITE, DIALECT, RUN) == [*RUN, "--standalone", "--nproc_per_node=4", "train.py"]
    assert not needs_master(JOB, RUN)
    # before 1.9 nothing finds a free port
    assert needs_master(JOB, LAUNCH)
    words = torchrun_words(JOB, SITE, DIALECT, LAUNCH)
    assert "--standalone" not in words
    assert words[-4:] == ["--master_addr=127.0.0.1", '--master_port="$MASTER_PORT"', "--nproc_per_node=4", "train.py"]
    script = torchrun_words(replace(JOB, nodes=2), SITE, DIALECT, LAUNCH)[2]
    assert script.startswith("'exec python -m torch.distributed.launch --use_env --nnodes=2 --nproc_per_node=4 ")


def test_launch_words_of_processes_need_torchrun() -> None:
    assert check_job(replace(JOB, processes=2))
    with pytest.raises(InvalidJob, match="processes: only torchrun starts several processes per task"):
        check_job(replace(JOB, processes=2, parallel=Parallel.MPI))
