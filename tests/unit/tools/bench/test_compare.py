# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from tests.builders.rows import each_row

from kedge.base.frozen import replace
from kedge.errors import UsageError
from kedge.tools.bench.compare import FASTER, SAME, SLOWER, compare_records
from kedge.tools.bench.record import BenchRecord, Figure, Machine


def make_record(*values: float, unit: str = "GFLOP/s", machine: Machine | None = None) -> BenchRecord:
    return BenchRecord("matmul", (Figure("1024 float32", unit, values),), machine or Machine("a", "cpu", 2), "x.sif")


@each_row(
    ("first", "second", "unit", "verdict"),
    [
        ((100, 101, 102), (101, 103, 105), "GFLOP/s", SAME),
        ((100, 101, 102), (103, 104, 105), "GFLOP/s", FASTER),
        ((100, 101, 102), (90, 91, 92), "GFLOP/s", SLOWER),
        ((1.0, 1.1, 1.2), (0.5, 0.6, 0.7), "s", FASTER),
        ((1.0, 1.1, 1.2), (1.5, 1.6, 1.7), "s", SLOWER),
    ],
)
def test_compare_says_when_a_difference_is_noise(
    first: tuple[float, ...], second: tuple[float, ...], unit: str, verdict: str
) -> None:
    comparison = compare_records(make_record(*first, unit=unit), make_record(*second, unit=unit))
    (figure,) = comparison.figures
    assert figure.verdict == verdict
    assert (figure.ratio > 1) == (verdict != SLOWER)
    assert comparison.differences == ()


def test_compare_names_machines_and_images_that_differ() -> None:
    first = make_record(1.0, machine=Machine("a", "Xeon", 8, 1 << 34, ("NVIDIA A100",), "550.54.15"))
    second = make_record(1.0, machine=Machine("b", "EPYC", 8, 1 << 34, ("NVIDIA H200",), "580.95.05"))
    differences = compare_records(first, replace(second, image="", kedge="0.2")).differences
    assert differences == (
        "CPU: Xeon and EPYC", "GPUs: 1 x NVIDIA A100 and 1 x NVIDIA H200", "driver: 550.54.15 and 580.95.05",
        "image: x.sif and none", "kedge: unknown and 0.2",
    )  # fmt: skip


def test_compare_names_what_one_lacks() -> None:
    first, second = make_record(1.0), make_record(2.0)
    more = replace(first, figures=(*first.figures, Figure("2048 float32", "GFLOP/s", (3.0,))))
    assert compare_records(more, second).only_first == ("2048 float32",)
    assert compare_records(second, more).only_second == ("2048 float32",)


def test_compare_refuses_what_has_nothing_in_common() -> None:
    with pytest.raises(UsageError, match="different benches: matmul and nbody"):
        compare_records(make_record(1.0), replace(make_record(1.0), bench="nbody"))
    with pytest.raises(UsageError, match="no figure in common"):
        compare_records(make_record(1.0), make_record(1.0, unit="s"))
