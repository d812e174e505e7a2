# SPDX-License-Identifier: BSD-3-Clause
"""Hosts of a test's own on one machine: each has its network address, hostname, users, /dev/shm and local disk.

Each host is a process that holds namespaces, and so is the switch between them: when those end, all of it is gone,
and the machine's own network never knew. with VirtualHosts(["head", "gpu01"]) as hosts:
hosts.run("gpu01", "hostname"), or prefix any command line with hosts.prefix("gpu01").
"""

from __future__ import annotations

import socket
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from kedge.system import libc
from kedge.system.libc import CLONE_NEWNET
from tests.builders.own_etc import make_etc
from tests.cluster.daemons import Daemons, private_folder
from tests.cluster.users import list_accounts
from tests.requirements import require_program, require_root

NETWORK = "10.77.0"
_HOLD = """\
set -e
hostname "$1"
mount --bind "$2/etc" /etc
# the one of the machine shows the interfaces of its own network, and programs look for theirs in it
mkdir "$2/sys-$1"
mount -t sysfs sysfs "$2/sys-$1"
mount --rbind /sys/fs/cgroup "$2/sys-$1/fs/cgroup"
mount --move "$2/sys-$1" /sys
rmdir "$2/sys-$1"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs "$2/local"
ip link set lo up
touch "$2/ready/$1"
exec sleep infinity
"""


class VirtualHosts:
    """Hosts that reach each other and nothing else; root makes them. A user's home is HOMES/USER/home."""

    def __init__(self, names: list[str], homes: Path) -> None:
        self.names = names
        self._homes = homes
        self._stack = ExitStack()
        self._pids: dict[str, int] = {}

    def __enter__(self) -> Self:
        require_root()
        for name in ("ip", "nsenter", "unshare", "hostname"):
            require_program(name)
        with ExitStack() as stack:
            self.folder = stack.enter_context(private_folder("hosts"))
            self._daemons = Daemons(self.folder, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOSTS": str(self.folder)})
            stack.callback(self._daemons.end_all)
            self._make()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    @property
    def local_disk(self) -> Path:
        """A directory at the same place on every host, whose files only that host sees."""
        return self.folder / "local"

    def find_pid(self, name: str) -> int:
        """The process that holds a host."""
        return self._pids[name]

    def prefix(self, name: str) -> tuple[str, ...]:
        """The words that bring a command line to a host."""
        return (
            require_program("nsenter"),
            f"--target={self._pids[name]}",
            "--net",
            "--uts",
            "--mount",
            "--root",
            "--wd=.",
            "--",
        )

    def run(self, name: str, *words: str) -> str:
        """What a program prints on a host; a failure fails the test."""
        done = subprocess.run([*self.prefix(name), *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{name}: {words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def listen(self, name: str) -> socket.socket:
        """A socket of this process on which hosts reach it, at a free port of one of them."""
        return listen_in(Path(f"/proc/{self._pids[name]}/ns/net"))

    def _make(self) -> None:
        for name in ("ready", "local"):
            (self.folder / name).mkdir()
        addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(self.names, start=1)}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        make_etc(self.folder / "etc", list_accounts(self._homes), hosts="".join(f"{line}\n" for line in lines))
        for name in ("switch", *self.names):
            hold = ["unshare", "--net", "--uts", "--mount", "sh", "-c", _HOLD, "hold", name, str(self.folder)]
            self._pids[name] = self._daemons.start(name, hold).pid
        ready = self.folder / "ready"
        self._daemons.wait_until("the hosts are there", lambda: len(list(ready.iterdir())) == len(self._pids))
        self.run("switch", "sh", "-ec", "ip link add bridge type bridge; ip link set bridge up")
        for number, (name, address) in enumerate(addresses.items(), start=1):
            self._connect(name, f"port{number}", address)

    def _connect(self, name: str, port: str, address: str) -> None:
        self.run("switch", "ip", *f"link add {port} type veth peer name eth0 netns {self._pids[name]}".split())
        self.run("switch", "ip", *f"link set {port} master bridge up".split())
        self.run(name, "sh", "-ec", f"ip addr add {address}/24 dev eth0; ip link set eth0 up")


def listen_in(network: Path) -> socket.socket:
    """A socket of this process at a free port of a network namespace."""
    made: list[socket.socket] = []

    def make() -> None:  # a thread of its own: it never returns to the network that it came from
        with network.open() as namespace:
            libc.join_namespace(namespace.fileno(), CLONE_NEWNET)
        made.append(socket.create_server(("0.0.0.0", 0)))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]
