# SPDX-License-Identifier: BSD-3-Clause
"""Repeated runs of benches on ranks: warm-up, median, and what figures keep of each run."""

from __future__ import annotations

import itertools

import pytest

from kedge.compat.bandwidth import BandwidthReport, BandwidthRow, judge_bandwidth
from kedge.tools.bench.record import Repeats
from kedge.tools.bench.run_ranks import (
    AllreduceResult,
    PiResult,
    make_allreduce_figures,
    make_pi_figures,
    merge_reports,
)


def make_report(seconds: float, wrong: int = 0) -> BandwidthReport:
    return BandwidthReport("MPI", 2, ("a",), rows=(BandwidthRow(8, 1e-6, 2), BandwidthRow(1 << 20, seconds, 2, wrong)))


def test_repeats_leave_out_the_warm_up() -> None:
    assert Repeats(2, 3).collect(itertools.count().__next__) == [2, 3, 4]


def test_repeats_of_an_allreduce_give_the_median_and_every_wrong_sum() -> None:
    report = merge_reports([make_report(0.4), make_report(0.1), make_report(0.2, wrong=7)])
    assert [row.seconds for row in report.rows] == [1e-6, 0.2]
    assert report.wrong == 7


def test_repeats_are_all_in_the_figures() -> None:
    report = make_report(0.2)
    timings = ((1e-6, 1e-6), (0.1, 0.2))
    result = AllreduceResult(report, judge_bandwidth(report, None), "mpirun", timings=timings)
    assert make_allreduce_figures(result)[1].values == pytest.approx([(1 << 20) / 1e8, (1 << 20) / 2e8])
    (figure,) = make_pi_figures(PiResult(4, 1, 3.14, 1000, 0.2, "mpirun", timings=(0.1, 0.2, 0.3)))
    assert (figure.median, figure.spread) == (0.2, pytest.approx(1.0))
