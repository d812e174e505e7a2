# SPDX-License-Identifier: BSD-3-Clause
"""What --nv refuses before anything starts, with the sentences that users read; and what it lets through."""

from __future__ import annotations

import pytest

from kedge.container.devices import plan_devices
from kedge.container.options import RunOptions
from kedge.errors import WillNotRun
from tests.builders.gpu_hosts import make_compat_image, make_driver_tree, make_host, make_image
from tests.builders.rows import with_rows
from tests.wording import assert_begins, assert_reads, assert_says

NOTE_590 = {"Format": 1, "CUDA Version": "13.1", "Driver": [535, 550, 570, 575, 580, 590]}
PYTORCH_2507 = "7.5 8.0 8.6 9.0 10.0 12.0+PTX"


def make_framework(cuda: str, listed: str = ""):
    lines = f"export CUDA_VERSION={cuda}\n" + (f'export TORCH_CUDA_ARCH_LIST="{listed}"\n' if listed else "")
    return make_image(env=lines)


def start(image, driver: str, *models: str, **options: object):
    host = make_host(make_driver_tree(driver, models or ("NVIDIA A100-SXM4-80GB",)))
    given = {"verb": "exec", "arguments": ["python"], "nv": True, **options}
    return plan_devices(RunOptions(**given), host, image)


def refuse(image, driver: str, *models: str) -> WillNotRun:
    with pytest.raises(WillNotRun) as caught:
        start(image, driver, *models)
    return caught.value


def test_preflight_refuses_images_for_newer_drivers() -> None:
    problem = refuse(make_framework("13.0.2.006"), "535.216.01")
    assert_reads(problem.message, "compat/image-cannot-work-node-needs", "CUDA 13.0.2", "535.216.01")
    assert (problem.hint or "").endswith("--force starts it anyway; 'kedge recommend' lists images that work")
    problem = refuse(make_compat_image("590.44.01", NOTE_590), "565.57.01")
    assert_says(problem.message, "run/needs-cuda-driver-node-supports", 13, "565.57.01", 12)
    assert_begins(problem.hint or "", "run/use-image-cuda-node-newer", 12)


def test_preflight_refuses_gpus_without_kernels() -> None:
    problem = refuse(make_framework("12.9.1.010", PYTORCH_2507), "580.95.05", "Tesla V100-SXM2-32GB")
    assert_reads(problem.message, "run/image-cannot-work-node-tesla")
    assert_says(problem.hint or "", "compat/take-older-image-gpu-compute", "7.5")
    image = make_framework("12.9.1.010", "7.5 8.0+PTX")
    problem = refuse(image, "535.216.01", "NVIDIA H200")
    assert_reads(problem.message, "compat/image-cannot-work-node-image", "7.5 8.0+PTX", "535.216.01")
    assert start(image, "580.95.05", "NVIDIA H200").warnings == []


@with_rows(
    *(({"force": True}, "python"), ({"dry_run": True}, "python"), ({"verb": "shell"}, ""), ({}, "nvidia-smi")),
    ({}, "/usr/bin/nvidia-smi"),
)
def test_preflight_lets_lookers_and_force_through_with_a_warning(options: dict[str, object], program: str) -> None:
    arguments = [program] if program else []
    additions = start(make_framework("13.0.2.006"), "535.216.01", arguments=arguments, **options)
    assert any(text.startswith("GPU programs of this image will fail on this node. ") for text in additions.warnings)


@with_rows(
    ("12.9.1.010", PYTORCH_2507, "580.95.05", ["NVIDIA H200"]),
    ("12.9.1.010", PYTORCH_2507, "535.216.01", ["NVIDIA H200"]),  # minor-version compatibility
    ("12.9.1.010", PYTORCH_2507, "580.95.05", ["Tesla V100-SXM2-32GB", "NVIDIA H200"]),  # one of two serves
    ("12.9.1.010", PYTORCH_2507, "580.95.05", ["NVIDIA X900"]),  # nobody knows it
    ("", "", "535.216.01", ["NVIDIA H200"]),
    ("not a version", "nonsense ; ;", "535.216.01", ["NVIDIA H200"]),
)
def test_preflight_refuses_nothing_that_may_run(cuda: str, listed: str, driver: str, models: list[str]) -> None:
    assert start(make_framework(cuda, listed), driver, *models).warnings == []
