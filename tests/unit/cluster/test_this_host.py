# SPDX-License-Identifier: BSD-3-Clause
"""This machine as a node, and the GPUs that a program on it is let to see."""

from __future__ import annotations

import os

import pytest

from kedge.cluster.this_host import read_this_host
from kedge.system.host.gpu_devices import count_visible, list_gpus
from tests.builders.rows import each_row


@pytest.fixture
def devices(tmp_path) -> str:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return str(tmp_path)


def test_this_host_and_its_gpus(devices: str, tmp_path) -> None:
    assert list_gpus(devices) == ("0", "1", "10")
    assert list_gpus(str(tmp_path / "nowhere")) == ()
    assert count_visible({}, devices) == 3
    host = read_this_host({"CUDA_VISIBLE_DEVICES": "0,1"})
    assert (host.name, host.gpus) == (os.uname().nodename, 2)
    assert host.cpus >= 1


@each_row(
    ("chosen", "count"),
    [("0,1", 2), ("GPU-8a3f,MIG-12", 2), ("", 0), ("NoDevFiles", 0), ("-1", 0), ("0,-1,1", 1), ("void", 0), ("3", 1)],
)
def test_gpus_that_a_program_sees(devices: str, chosen: str, count: int) -> None:
    assert count_visible({"CUDA_VISIBLE_DEVICES": chosen}, devices) == count
