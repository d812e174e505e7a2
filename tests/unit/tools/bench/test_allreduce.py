# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from tests.builders.rows import each_row

from kedge.errors import LaunchFailed
from kedge.tools.bench.allreduce import make_report


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
