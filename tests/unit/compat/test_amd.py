# SPDX-License-Identifier: BSD-3-Clause
"""AMD's GPUs, which some queues have: images for CUDA are refused there, and what to take instead is said."""

from __future__ import annotations

from pathlib import Path

from kedge.answers.targets import find_target
from kedge.compat.judge import judge
from kedge.compat.recommend import recommend
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.target import Target
from kedge.compat.verdict import NO, UNKNOWN
from kedge.container.facts import Additions
from kedge.system.settings import Settings
from tests.builders.gpu_hosts import make_host
from tests.builders.user_threads import TABLES, read_image, start
from tests.wording import assert_begins, assert_reads, assert_says


def find_queue(folder: Path) -> Target:
    environ = {"HOME": str(folder)}
    settings = Settings.load(environ=environ)
    return find_target(site="sdumont2nd:lncc-mi300a", environ=environ, settings=settings, tables=TABLES)


def test_amd_queue_of_a_site_does_not_run_cuda(tmp_path: Path) -> None:
    verdict = judge(read_image("nvcr.io/nvidia/pytorch:24.01-py3"), find_queue(tmp_path), TABLES)
    assert verdict.outcome == NO
    assert_reads(verdict.headline, "compat/does-not-run-amd-cuda")
    [only] = [each for each in verdict.judgements if each.subject == "gpu"]
    assert_reads(only.sentence, "compat/cuda-images-do-not-run")
    assert_begins(only.remedy, "compat/take-image-rocm")
    verdict = judge(read_image("rocm/pytorch:latest", ROCM_VERSION="6.2"), find_queue(tmp_path), TABLES)
    assert verdict.outcome == UNKNOWN
    assert_says(verdict.judgements[0].sentence, "compat/unknown-whether-rocm-one-supports")
    found = recommend("pytorch", find_queue(tmp_path), TABLES)
    assert found.best is None
    assert_reads(found.sentence, "recommend/ngc-images-run-nvidia-gpus", "AMD MI300A")


def test_amd_beside_nvidia_and_on_a_node() -> None:
    gpus = (find_gpu("MI300A", TABLES), find_gpu("H100", TABLES))
    target = Target("queue mixed", "queue", gpus, has_gpus=True, driver="580.95.05", architecture="amd64")
    verdict = judge(read_image("nvcr.io/nvidia/pytorch:24.01-py3"), target, TABLES)
    assert verdict.outcome == NO
    assert_says(verdict.headline, "compat/it-runs-on", "NVIDIA H100")
    additions: Additions = start(make_host({"/proc/sys/kernel/hostname": "n1\n", "/dev/kfd": ""}))
    assert additions.warnings == [
        "--nv: n1 has AMD GPUs (/dev/kfd) and no NVIDIA GPU: images for CUDA do not run on them. "
        "Use an image for ROCm, and start it with --rocm."
    ]
