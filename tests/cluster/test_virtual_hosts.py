# SPDX-License-Identifier: BSD-3-Clause
"""The virtual hosts that other tests use are hosts: names, addresses, users and local disks of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.daemons import processes_of
from tests.cluster.virtual_hosts import NETWORK, VirtualHosts
from tests.requirements import require_root


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualHosts]:
    require_root()
    with VirtualHosts(["one", "two"], tmp_path_factory.mktemp("homes")) as hosts:
        yield hosts


def test_virtual_hosts_know_each_other_by_name(hosts: VirtualHosts) -> None:
    assert hosts.run("one", "hostname") == "one\n"
    assert hosts.run("one", "getent", "hosts", "two").split() == [f"{NETWORK}.2", "two"]


def test_virtual_hosts_reach_each_other_and_nothing_else(hosts: VirtualHosts) -> None:
    serve = "import socket; s = socket.create_server(('', 7000)); print(flush=True); s.accept()[0].sendall(b'hello')"
    ask = "import socket; print(socket.create_connection(('two', 7000), 10).recv(5).decode())"
    script = 'coproc python3 -c "$0"; read -u ${COPROC[0]}; nsenter --net=/proc/%s/ns/net python3 -c "$1"; wait'
    one = hosts.prefix("one")[1].rpartition("=")[2]
    assert hosts.run("two", "bash", "-c", script % one, serve, ask) == "hello\n"
    assert hosts.run("one", "ip", "route").split()[0] == f"{NETWORK}.0/24", "and no default route"


def test_virtual_hosts_have_local_disks_and_shared_folders(hosts: VirtualHosts, tmp_path: Path) -> None:
    hosts.run("one", "touch", str(hosts.local_disk / "mine"), str(tmp_path / "ours"))
    assert hosts.run("one", "ls", str(hosts.local_disk)) == "mine\n"
    assert hosts.run("two", "ls", str(hosts.local_disk), str(tmp_path)).split()[-1] == "ours"
    assert hosts.run("two", "ls", str(hosts.local_disk)) == ""


def test_virtual_hosts_have_users_with_homes(hosts: VirtualHosts) -> None:
    line = hosts.run("two", "getent", "passwd", "alice").strip().split(":")
    assert (line[2], line[6]) == ("20001", "/bin/bash")


def test_virtual_hosts_end(tmp_path: Path) -> None:
    require_root()
    with VirtualHosts(["one"], tmp_path) as hosts:
        assert len(processes_of(hosts.folder)) == 2
    assert not processes_of(hosts.folder)
    assert not hosts.folder.exists()
