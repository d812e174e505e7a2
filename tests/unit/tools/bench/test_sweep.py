# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from kedge.base.frozen import replace
from kedge.errors import UsageError
from kedge.tools.bench.record import BenchRecord, Figure, Machine
from kedge.tools.bench.sweep import RANK, join_records, list_scaling


def make_run(workers: int, value: float, *, unit: str = "s", nodes: int = 1, work: str = "9 intervals") -> BenchRecord:
    figure = Figure(work, unit, (value,), work=work, workers=workers, nodes=nodes)
    return BenchRecord("pi", (figure,), Machine("a", "cpu", 8))


def scale(*records: BenchRecord) -> list[tuple[str, float | None, float]]:
    points = list_scaling(join_records(records, RANK))
    return [(point.name, point.speed_up, point.efficiency) for point in points]


def test_sweep_speed_up_and_efficiency_are_over_the_fewest_ranks() -> None:
    assert scale(make_run(4, 3.0), make_run(2, 4.0), make_run(8, 2.0)) == [
        ("4 ranks 9 intervals", pytest.approx(4 / 3), pytest.approx(2 / 3)),
        ("2 ranks 9 intervals", 1.0, 1.0),
        ("8 ranks 9 intervals", 2.0, 0.5),
    ]


def test_sweep_rates_grow_where_times_shrink() -> None:
    found = scale(make_run(1, 100.0, unit="GFLOP/s"), make_run(4, 360.0, unit="GFLOP/s"))
    assert found[1] == ("4 ranks 9 intervals", pytest.approx(3.6), pytest.approx(0.9))


def test_sweep_bandwidth_is_not_shared_by_ranks() -> None:
    found = scale(make_run(2, 10.0, unit="GB/s", work="8 B"), make_run(8, 7.0, unit="GB/s", work="8 B"))
    assert found == [("2 ranks 8 B", None, 1.0), ("8 ranks 8 B", None, pytest.approx(0.7))]


def test_sweep_compares_the_same_work_only() -> None:
    found = scale(*(make_run(ranks, 8.0 * size / ranks, work=f"{size}") for ranks in (1, 2) for size in (1, 3)))
    assert [speed_up for _, speed_up, _ in found] == [1.0, 1.0, 2.0, 2.0]


def test_sweep_names_nodes_where_they_differ() -> None:
    found = scale(make_run(4, 4.0), make_run(4, 2.0, nodes=2))
    assert found == [("1 node 4 ranks 9 intervals", 1.0, 1.0), ("2 nodes 4 ranks 9 intervals", 2.0, 2.0)]


def test_sweep_of_sizes_alone_has_no_speed_up() -> None:
    record = join_records([make_run(2, 1.0, work="1"), make_run(2, 3.0, work="3")], RANK)
    assert [figure.name for figure in record.figures] == ["1", "3"]
    assert list_scaling(record) == ()


def test_sweep_without_any_figure_is_refused() -> None:
    nothing = replace(make_run(1, 1.0), figures=())
    with pytest.raises(UsageError, match="nothing was measured"):
        join_records([nothing, nothing], RANK)
