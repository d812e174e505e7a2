# SPDX-License-Identifier: BSD-3-Clause
"""Users whose GPU the image had no kernels for: told by the names that they know, before the job is queued."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.cluster.job import Job
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.site import Queue, Site
from kedge.compat.failures.find_clues import find_clues
from kedge.compat.judge import judge
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.target import Target
from kedge.compat.verdict import NO
from kedge.errors import UnknownGpu, WillNotRun
from kedge.jobs.cluster import Cluster
from kedge.jobs.records import Records
from kedge.jobs.submit import plan_submit
from kedge.system.settings import Settings
from tests.builders.gpu_hosts import make_image
from tests.builders.user_threads import TABLES, about, ask, case, make_node, read_image, start, tell
from tests.wording import assert_ends, assert_reads, assert_says


@pytest.mark.parametrize(
    ("cuda", "listed", "gpu", "driver", "words"),
    [
        case(
            23,
            *("10.1.243", "3.7 5.0 6.0 6.1 7.0 7.5", "Tesla K40m", "418.87.00"),
            ["Tesla K40m (compute capability 3.5) is older than all GPUs that the image has kernels for"],
        ),
        case(
            24,
            *("11.0.3", "5.2 6.0 6.1 7.0 7.5 8.0+PTX", "Tesla K80", "450.80.02"),
            ["Tesla K80 (compute capability 3.7) is older", "a GPU of compute capability 5.2 or newer"],
        ),
        case(
            25,
            *("10.2.89", "3.7 5.0 6.0 7.0", "NVIDIA GeForce RTX 3090", "460.32.03"),
            ["(compute capability 8.6) is newer than all GPUs", "Take an image with CUDA 11.1 or newer."],
        ),
        case(
            28,
            *("13.0.2", "", "Tesla V100-SXM2-32GB", "580.95.05"),
            ["CUDA 13.0.2 no longer supports Tesla V100-SXM2-32GB (compute capability 7.0); 12.9 was the last"],
        ),
    ],
)
def test_threads_gpu_without_kernels_is_told_by_name(*, cuda, listed, gpu, driver, words):
    verdict = ask(read_image("own/image:1", CUDA_VERSION=cuda, TORCH_CUDA_ARCH_LIST=listed), gpu, driver)
    assert verdict.outcome == NO
    for each in (*words, "error 209, 'no kernel image is available for execution on the device'"):
        assert each in tell(verdict)


@about(23)
def test_threads_names_lead_to_capabilities() -> None:
    assert find_gpu("K40m", TABLES).capability == "3.5"
    assert find_gpu("TITAN V", TABLES).capability == "7.0"
    with pytest.raises(UnknownGpu, match="TITAN"):
        find_gpu("TITAN", TABLES)  # there are several, of different capabilities


@about(25)
def test_threads_torchs_own_warning_is_read() -> None:
    [clue] = find_clues(
        "UserWarning: \nGeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch "
        "installation.\nThe current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70 sm_75.\n"
    )
    assert_reads(clue.cause, "diagnose/image-no-kernels-gpu-compute", "8.6")


@about(26)
def test_threads_queue_with_several_kinds_of_nodes() -> None:
    gpus = (find_gpu("V100", TABLES), find_gpu("A100", TABLES))
    image = read_image("own/image:1", CUDA_VERSION="11.1.1", TORCH_CUDA_ARCH_LIST="3.7 5.0 6.0 7.0 7.5")
    verdict = judge(image, Target("queue gpu", "queue", gpus, driver="470.57.02"), TABLES)
    assert verdict.outcome == NO
    assert_ends(verdict.headline, "compat/it-runs-on", "Tesla V100")
    assert_says(tell(verdict), "compat/request-one-kind-gpu-job")


@about(27)
def test_threads_image_and_queue_are_checked_together(tmp_path: Path) -> None:
    queue = Queue("p100", is_default=True, gpus_per_node=1, gpu="P100", arch="amd64")
    site = Site(name="here", title="", scheduler="slurm", queues=(queue,))
    cluster = Cluster(site, find_backend("slurm"), "me", Records(tmp_path / "jobs"))
    image = "nvcr.io/nvidia/pytorch:24.11-py3"
    job = Job(image=image, command=("python", "x.py"), gpus_per_node=1, pull="in-job")
    environ = {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "store")}
    with pytest.raises(WillNotRun) as caught:
        plan_submit(job, cluster, Settings.load({}, environ), environ, str(tmp_path))
    assert_reads(caught.value.message, "compat/does-not-run-tesla-no", image)
    assert "List images that fit: " in (caught.value.hint or "")
    env = 'export CUDA_VERSION=12.6.3\nexport TORCH_CUDA_ARCH_LIST="7.0 7.5 8.0 8.6 9.0+PTX"\n'
    with pytest.raises(WillNotRun, match=r"Tesla P100-PCIE-16GB \(compute capability 6\.0\) is older than all GPUs"):
        start(make_node("570.124.06", "Tesla P100-PCIE-16GB"), make_image(env=env))
