# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from tests.builders.rows import each_row

from kedge.errors import LaunchRefused
from kedge.tools.bench.ways import GLOO, MPI, NCCL, NCCL_TESTS, ImageTools, choose_way

NGC = ImageTools(("all_reduce_perf_mpi", "all_reduce_perf", "python3"), has_torch=True, has_mpi=True)


@each_row(
    ("tools", "gpus", "nodes", "way"),
    [
        (NGC, 8, 2, NCCL_TESTS),
        (NGC, 0, 2, MPI),
        (ImageTools(("python3",), has_torch=True, has_mpi=True), 4, 2, NCCL),
        (ImageTools(("python3",), has_torch=True), 0, 2, GLOO),
        (ImageTools(("all_reduce_perf",), has_torch=True), 4, 1, NCCL_TESTS),
        (ImageTools(("all_reduce_perf",), has_torch=True), 4, 2, NCCL),
        (ImageTools(has_mpi=True), 4, 2, MPI),
    ],
)
def test_ways_are_chosen_by_image_and_gpus(tools: ImageTools, gpus: int, nodes: int, way: str) -> None:
    found, reason = choose_way("auto", tools, gpus=gpus, nodes=nodes)
    assert found == way
    assert reason
    assert choose_way(way, tools, gpus=gpus, nodes=nodes)[0] == way


@each_row(
    ("way", "tools", "gpus", "nodes", "reason"),
    [
        (NCCL, NGC, 0, 1, "there are no GPUs"),
        (NCCL_TESTS, ImageTools(("all_reduce_perf",)), 4, 2, "built without MPI"),
        (GLOO, ImageTools(has_mpi=True), 0, 1, "the image has no torch"),
        (MPI, ImageTools(has_torch=True), 0, 1, "the image has no MPI"),
    ],
)
def test_ways_that_are_not_possible_are_refused(
    way: str, tools: ImageTools, gpus: int, nodes: int, reason: str
) -> None:
    with pytest.raises(LaunchRefused, match=reason):
        choose_way(way, tools, gpus=gpus, nodes=nodes)


def test_ways_of_an_image_without_anything() -> None:
    with pytest.raises(LaunchRefused, match="nothing to measure with"):
        choose_way("auto", ImageTools(("python3",)), gpus=4, nodes=1)
