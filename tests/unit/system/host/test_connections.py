# SPDX-License-Identifier: BSD-3-Clause
"""The connections of a process as /proc shows them."""

from __future__ import annotations

import os
import socket

from kedge.system.host.connections import list_peers


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
