# SPDX-License-Identifier: BSD-3-Clause
"""The virtual hosts that other tests use are hosts: names, addresses, users and local disks of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.own_etc import make_etc
from tests.cluster.daemons import processes_of, wait_until
from tests.cluster.users import USERS
from tests.cluster.virtual_hosts import NETWORK, VirtualHosts
from tests.requirements import REPOSITORY, require_program, require_root


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
    assert (line[2], line[6]) == (str(USERS["alice"]), "/bin/bash")


def test_virtual_hosts_keep_their_users_while_the_machine_gets_others(tmp_path: Path) -> None:
    require_root()
    etc = make_etc(tmp_path / "etc", ())
    program = [sys.executable, REPOSITORY / "tests/programs/add_an_account_beside_hosts.py", tmp_path]
    words = [require_program("unshare"), "--mount", "sh", "-ec", 'mount --bind "$0" /etc; exec "$@"', etc, *program]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/src"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("True True\none False\n", "")


def test_virtual_hosts_end(tmp_path: Path) -> None:
    require_root()
    with VirtualHosts(["one"], tmp_path) as hosts:
        assert len(processes_of(hosts.folder)) == 2
    assert not processes_of(hosts.folder)
    wait_until("its folder is gone", lambda: not hosts.folder.exists())
