# SPDX-License-Identifier: BSD-3-Clause
"""What --nv refuses before anything starts, with the sentences that users read; and what it lets through."""

from __future__ import annotations

import pytest

from kedge.container.devices import plan_devices
from kedge.container.options import RunOptions
from kedge.errors import WillNotRun
from tests.builders.gpu_hosts import make_compat_image, make_driver_tree, make_host, make_image
from tests.builders.rows import with_rows

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
    assert problem.message == (
        "this image cannot work on this node: "
        "CUDA 13.0.2 needs driver 580 or newer: driver 535.216.01 is "
        "too old. The image has no newer libcuda of its own. Programs fail with error 35, 'CUDA "
        "driver version is insufficient for CUDA runtime version'."
    )
    assert (problem.hint or "").endswith("--force starts it anyway; 'kedge recommend' lists images that work")
    problem = refuse(make_compat_image("590.44.01", NOTE_590), "565.57.01")
    assert "It needs CUDA 13, driver 565.57.01 of this node supports CUDA 12, and the image's compat" in problem.message
    assert (problem.hint or "").startswith("Use an image for CUDA 12, or a node with a newer driver.")


def test_preflight_refuses_gpus_without_kernels() -> None:
    problem = refuse(make_framework("12.9.1.010", PYTORCH_2507), "580.95.05", "Tesla V100-SXM2-32GB")
    assert problem.message == (
        "this image cannot work on this node: "
        "Tesla V100-SXM2-32GB (compute capability 7.0) is older than "
        "all GPUs that the image has kernels for (7.5 8.0 8.6 9.0 10.0 12.0+PTX). Programs fail with "
        "error 209, 'no kernel image is available for execution on the device'."
    )
    assert "Take an older image, or a GPU of compute capability 7.5 or newer." in (problem.hint or "")
    image = make_framework("12.9.1.010", "7.5 8.0+PTX")
    problem = refuse(image, "535.216.01", "NVIDIA H200")
    assert problem.message == (
        "this image cannot work on this node: "
        "The image has no kernels for NVIDIA H200 (compute capability "
        "9.0), only for 7.5 8.0+PTX, and driver 535.216.01 cannot compile its PTX: it is older than "
        "the image's CUDA. Programs fail with error 222, 'the provided PTX was compiled with an "
        "unsupported toolchain'."
    )
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
