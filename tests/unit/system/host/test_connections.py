# SPDX-License-Identifier: BSD-3-Clause
"""The connections of a process as /proc shows them, and the rates of fabrics."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from kedge.system.host.connections import list_peers
from kedge.system.host.fabric_rates import read_fabric_rates
from tests.builders.host_tree import write_tree


def test_connections_come_and_go() -> None:
    before = list_peers(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            peers = list_peers(os.getpid()) - before
            assert len(peers) == 2  # both ends are ours
            assert any(peer.endswith(f":{port:04X}") for peer in peers)
    assert list_peers(os.getpid()) == before


def test_connections_of_nobody() -> None:
    assert list_peers(2**22 + 1) == frozenset()


def test_fabric_rates_of_ports_that_are_up(tmp_path: Path) -> None:
    port = "sys/class/infiniband/{}/ports/1"
    files = {
        f"{port.format('mlx5_0')}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port.format('mlx5_0')}/state": "4: ACTIVE\n",
        f"{port.format('mlx5_1')}/rate": "10 Gb/sec (4X SDR)\n",
        f"{port.format('mlx5_1')}/state": "1: DOWN\n",
        f"{port.format('hfi1_0')}/rate": "100 Gb/sec (4X EDR)\n",
        f"{port.format('hfi1_0')}/state": "4: ACTIVE\n",
    }
    assert read_fabric_rates(write_tree(tmp_path, files)) == [100.0, 400.0]
    assert read_fabric_rates(tmp_path / "nothing") == []
