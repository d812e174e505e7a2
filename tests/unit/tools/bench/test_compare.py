# SPDX-License-Identifier: BSD-3-Clause
"""Results compared with each other, of two runs and of a sweep."""

from __future__ import annotations

import pytest
from tests.builders.rows import each_row

from kedge.base.frozen import replace
from kedge.errors import UsageError
from kedge.tools.bench.compare import FASTER, SAME, SLOWER, compare_records
from kedge.tools.bench.record import BenchRecord, Figure, Machine
from kedge.tools.bench.sweep import RANK, join_records, list_scaling


def make_record(*values: float, unit: str = "GFLOP/s", machine: Machine | None = None) -> BenchRecord:
    return BenchRecord("matmul", (Figure("1024 float32", unit, values),), machine or Machine("a", "cpu", 2), "x.sif")


@each_row(("first", "second", "unit", "verdict"), [
    ((100, 101, 102), (101, 103, 105), "GFLOP/s", SAME),
    ((100, 101, 102), (103, 104, 105), "GFLOP/s", FASTER),
    ((100, 101, 102), (90, 91, 92), "GFLOP/s", SLOWER),
    ((1.0, 1.1, 1.2), (0.5, 0.6, 0.7), "s", FASTER),
    ((1.0, 1.1, 1.2), (1.5, 1.6, 1.7), "s", SLOWER),
])  # fmt: skip
def test_compare_says_when_a_difference_is_noise(
    first: tuple[float, ...], second: tuple[float, ...], unit: str, verdict: str
) -> None:
    comparison = compare_records(make_record(*first, unit=unit), make_record(*second, unit=unit))
    (figure,) = comparison.figures
    assert figure.verdict == verdict
    assert (figure.ratio > 1) == (verdict != SLOWER)
    assert comparison.differences == ()


def test_compare_names_what_differs_or_is_missing() -> None:
    first = make_record(1.0, machine=Machine("a", "Xeon", 8, 1 << 34, ("NVIDIA A100",), "550.54.15"))
    second = make_record(1.0, machine=Machine("b", "EPYC", 8, 1 << 34, ("NVIDIA H200",), "580.95.05"))
    differences = compare_records(first, replace(second, image="", kedge="0.2")).differences
    assert differences == (
        "CPU: Xeon and EPYC", "GPUs: 1 x NVIDIA A100 and 1 x NVIDIA H200", "driver: 550.54.15 and 580.95.05",
        "image: x.sif and none", "kedge: unknown and 0.2",
    )  # fmt: skip
    first, second = make_record(1.0), make_record(2.0)
    more = replace(first, figures=(*first.figures, Figure("2048 float32", "GFLOP/s", (3.0,))))
    assert compare_records(more, second).only_first == ("2048 float32",)
    assert compare_records(second, more).only_second == ("2048 float32",)
    with pytest.raises(UsageError, match="different benches: matmul and nbody"):
        compare_records(make_record(1.0), replace(make_record(1.0), bench="nbody"))
    with pytest.raises(UsageError, match="no figure in common"):
        compare_records(make_record(1.0), make_record(1.0, unit="s"))


def make_run(workers: int, value: float, *, unit: str = "s", nodes: int = 1, work: str = "9 intervals") -> BenchRecord:
    figure = Figure(work, unit, (value,), work=work, workers=workers, nodes=nodes)
    return BenchRecord("pi", (figure,), Machine("a", "cpu", 8))


def scale(*records: BenchRecord) -> list[tuple[str, float | None, float]]:
    points = list_scaling(join_records(records, RANK))
    return [(point.name, point.speed_up, point.efficiency) for point in points]


def test_sweep_speed_up_compares_the_same_work() -> None:
    assert scale(make_run(4, 3.0), make_run(2, 4.0), make_run(8, 2.0)) == [
        ("4 ranks 9 intervals", pytest.approx(4 / 3), pytest.approx(2 / 3)),
        ("2 ranks 9 intervals", 1.0, 1.0),
        ("8 ranks 9 intervals", 2.0, 0.5),
    ]
    found = scale(make_run(1, 100.0, unit="GFLOP/s"), make_run(4, 360.0, unit="GFLOP/s"))
    assert found[1] == ("4 ranks 9 intervals", pytest.approx(3.6), pytest.approx(0.9))
    found = scale(make_run(2, 10.0, unit="GB/s", work="8 B"), make_run(8, 7.0, unit="GB/s", work="8 B"))
    assert found == [("2 ranks 8 B", None, 1.0), ("8 ranks 8 B", None, pytest.approx(0.7))]
    found = scale(*(make_run(ranks, 8.0 * size / ranks, work=f"{size}") for ranks in (1, 2) for size in (1, 3)))
    assert [speed_up for _, speed_up, _ in found] == [1.0, 1.0, 2.0, 2.0]
    found = scale(make_run(4, 4.0), make_run(4, 2.0, nodes=2))
    assert found == [("1 node 4 ranks 9 intervals", 1.0, 1.0), ("2 nodes 4 ranks 9 intervals", 2.0, 2.0)]


def test_sweep_without_scaling() -> None:
    record = join_records([make_run(2, 1.0, work="1"), make_run(2, 3.0, work="3")], RANK)
    assert [figure.name for figure in record.figures] == ["1", "3"]
    assert list_scaling(record) == ()
    nothing = replace(make_run(1, 1.0), figures=())
    with pytest.raises(UsageError, match="nothing was measured"):
        join_records([nothing, nothing], RANK)
