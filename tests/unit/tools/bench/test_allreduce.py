# SPDX-License-Identifier: BSD-3-Clause
"""Benches on ranks: the way that is taken, what ranks answer, repeated runs and what figures keep of each."""

from __future__ import annotations

import itertools

import pytest
from tests.builders.rows import each_row

from kedge.compat.bandwidth import BandwidthReport, BandwidthRow, judge_bandwidth
from kedge.errors import LaunchFailed, LaunchRefused
from kedge.tools.bench.record import Repeats
from kedge.tools.bench.run_ranks import (
    GLOO,
    MPI,
    NCCL,
    NCCL_TESTS,
    AllreduceResult,
    ImageTools,
    PiResult,
    choose_way,
    make_allreduce_figures,
    make_pi_figures,
    make_report,
    merge_reports,
)


def row(pid: int, size: int, count: int, seconds: float) -> dict[str, object]:
    return {"kedge": "allreduce", "pid": pid, "size": size, "bytes": count, "seconds": seconds}


def test_allreduce_report_of_ranks() -> None:
    worlds = [
        {"kedge": "world", "host": host, "device": "NVIDIA H200", "version": "torch 2.4"} for host in ("n1", "n1", "n2")
    ]
    report = make_report("NCCL", 3, [*worlds, row(5, 3, 8, 1e-5), row(5, 3, 3 << 20, 1e-3)])
    assert (report.hosts, report.devices, report.version) == (("n1", "n2"), ("NVIDIA H200",), "torch 2.4")
    assert report.latency == 1e-5
    assert report.best_bandwidth == pytest.approx((3 << 20) / 1e-3 / 1e9 * 4 / 3)


@each_row("values", [[row(5, 1, 8, 1.0), row(6, 1, 8, 1.0)], [row(5, 1, 8, 1.0)]])
def test_allreduce_of_ranks_that_are_alone_is_no_result(values: list[dict[str, object]]) -> None:
    with pytest.raises(LaunchFailed, match="separately instead of as one world of 2"):
        make_report("MPI", 2, values)


NGC = ImageTools(("all_reduce_perf_mpi", "all_reduce_perf", "python3"), has_torch=True, has_mpi=True)


@each_row(("tools", "gpus", "nodes", "way"), [
    (NGC, 8, 2, NCCL_TESTS),
    (NGC, 0, 2, MPI),
    (ImageTools(("python3",), has_torch=True, has_mpi=True), 4, 2, NCCL),
    (ImageTools(("python3",), has_torch=True), 0, 2, GLOO),
    (ImageTools(("all_reduce_perf",), has_torch=True), 4, 1, NCCL_TESTS),
    (ImageTools(("all_reduce_perf",), has_torch=True), 4, 2, NCCL),
    (ImageTools(has_mpi=True), 4, 2, MPI),
])  # fmt: skip
def test_ways_are_chosen_by_image_and_gpus(tools: ImageTools, gpus: int, nodes: int, way: str) -> None:
    found, reason = choose_way("auto", tools, gpus=gpus, nodes=nodes)
    assert found == way
    assert reason
    assert choose_way(way, tools, gpus=gpus, nodes=nodes)[0] == way


@each_row(("way", "tools", "gpus", "nodes", "reason"), [
    (NCCL, NGC, 0, 1, "there are no GPUs"),
    (NCCL_TESTS, ImageTools(("all_reduce_perf",)), 4, 2, "built without MPI"),
    (GLOO, ImageTools(has_mpi=True), 0, 1, "the image has no torch"),
    (MPI, ImageTools(has_torch=True), 0, 1, "the image has no MPI"),
])  # fmt: skip
def test_ways_that_are_not_possible_are_refused(
    way: str, tools: ImageTools, gpus: int, nodes: int, reason: str
) -> None:
    with pytest.raises(LaunchRefused, match=reason):
        choose_way(way, tools, gpus=gpus, nodes=nodes)


def test_ways_of_an_image_without_anything() -> None:
    with pytest.raises(LaunchRefused, match="nothing to measure with"):
        choose_way("auto", ImageTools(("python3",)), gpus=4, nodes=1)


def report_of(seconds: float, wrong: int = 0) -> BandwidthReport:
    return BandwidthReport("MPI", 2, ("a",), rows=(BandwidthRow(8, 1e-6, 2), BandwidthRow(1 << 20, seconds, 2, wrong)))


def test_repeats_leave_out_the_warm_up_and_keep_all_else() -> None:
    assert Repeats(2, 3).collect(itertools.count().__next__) == [2, 3, 4]
    report = merge_reports([report_of(0.4), report_of(0.1), report_of(0.2, wrong=7)])
    assert [row.seconds for row in report.rows] == [1e-6, 0.2]
    assert report.wrong == 7
    report = report_of(0.2)
    timings = ((1e-6, 1e-6), (0.1, 0.2))
    result = AllreduceResult(report, judge_bandwidth(report, None), "mpirun", timings=timings)
    assert make_allreduce_figures(result)[1].values == pytest.approx([(1 << 20) / 1e8, (1 << 20) / 2e8])
    (figure,) = make_pi_figures(PiResult(4, 1, 3.14, 1000, 0.2, "mpirun", timings=(0.1, 0.2, 0.3)))
    assert (figure.median, figure.spread) == (0.2, pytest.approx(1.0))
