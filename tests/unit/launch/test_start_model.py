# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from kedge.launch.start_model import (
    NFS,
    PARALLEL,
    FileServer,
    JobSize,
    StartCost,
    count_bytes,
    count_operations,
    estimate_broadcast,
    estimate_saving,
    estimate_start,
    find_server,
)
from tests.builders.rows import each_row

INSTALLED = StartCost("installed", first=400, later=200, node_bytes=1_000_000, seconds=0.05)
STAGED = StartCost("staged", first=10, later=0, node_bytes=0, seconds=0.05, staged_bytes=30_000_000)
EXACT = FileServer("server", operations=1000, bandwidth=1e6, latency=0.001)


def test_starts_are_counted_and_bounded() -> None:
    assert count_operations(INSTALLED, JobSize(1, 1)) == 400
    assert count_operations(INSTALLED, JobSize(2, 8)) == 2 * (400 + 7 * 200)
    assert count_bytes(INSTALLED, JobSize(4, 8, image_bytes=100)) == 4 * (1_000_000 + 100)
    assert count_bytes(STAGED, JobSize(4, 8)) == 30_000_000
    assert estimate_start(INSTALLED, EXACT, JobSize(1, 1)) == pytest.approx(0.4 + 1.0 + 0.05)
    size = JobSize(64, 8)
    operations = 64 * (400 + 7 * 200) / 1000
    assert estimate_start(INSTALLED, EXACT, size) == pytest.approx(operations + 64 * 1.0 + 0.05)


def test_times_grow_with_nodes_ranks_and_broadcasts() -> None:
    times = [estimate_start(INSTALLED, NFS, JobSize(nodes, 64)) for nodes in (256, 512, 1024)]
    assert times[0] < times[1] < times[2] < 2.01 * times[1]
    few, many = (estimate_start(STAGED, PARALLEL, JobSize(1, ranks, cores=8)) for ranks in (8, 64))
    assert many - few == pytest.approx(7 * 0.05)
    assert estimate_broadcast(1 << 30, 1) == 0
    assert estimate_broadcast(1 << 30, 9) == estimate_broadcast(1 << 30, 1024)
    assert estimate_broadcast(1 << 30, 3) < estimate_broadcast(1 << 30, 9)
    image = 4_000_000_000
    assert estimate_saving(image, NFS, 2) < 0 < estimate_saving(image, NFS, 64)
    assert estimate_saving(image, PARALLEL, 64) < 0 < estimate_saving(image, PARALLEL, 1024)
    assert estimate_saving(image, NFS, 1) == 0


@each_row(
    ("kind", "server"), [("lustre", PARALLEL), ("nfs4", NFS), ("ext4", None), ("tmpfs", None), ("fuse.sshfs", None)]
)
def test_server_of_a_file_system(kind: str, server: FileServer | None) -> None:
    assert find_server(kind) is server
