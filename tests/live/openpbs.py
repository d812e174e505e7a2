# SPDX-License-Identifier: BSD-3-Clause
"""A real OpenPBS with two nodes, each a host of its own, where one was installed: Debian has no package of it."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders.waiting import wait_until
from tests.cluster.users import USERS, ClusterUser, make_user
from tests.cluster.virtual_hosts import listen_in
from tests.requirements import require_root, require_shared

_HERE = Path("/opt/pbs/bin")
LOGIN = "pbshead"
_HOSTS = (LOGIN, "pbsn1", "pbsn2")
_ETC = Path(os.environ.get("KEDGE_PEERS", "/var/tmp/kedge-peers"), "etc")


class OpenPbs:
    """The server and what its administrator does; `user` gives who works with it."""

    def __init__(self, tool: Path, folder: Path) -> None:
        self._tool = tool
        self._folder = folder
        self._prefix = (str(tool), "on", _HOSTS[0])

    def user(self, name: str = "alice") -> ClusterUser:
        path = f"{_HERE}:/usr/bin:/bin"
        environment = {"KEDGE_SITE": "generic-pbs", "PATH": path, "USER": name, "LOGNAME": name}
        return make_user(self._folder / name, USERS[name], environment, self._prefix)

    def listen(self, name: str) -> socket.socket:
        """A socket of this process on which the nodes reach it."""
        return listen_in(Path("/run/netns", name))

    def read(self, *words: str, stdin: str = "") -> str:
        """What a program of PBS prints for its administrator."""
        done = self._run(_HOSTS[0], *words, stdin=stdin)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _run(self, host: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        argv = [self._tool, "on", host, _HERE / words[0], *words[1:]]
        return subprocess.run(argv, capture_output=True, text=True, input=stdin, timeout=120, check=False)

    def set(self, *lines: str) -> None:
        """Change the settings of the server, of nodes or of queues, as qmgr has them."""
        self.read("qmgr", stdin="\n".join(lines))

    def find_fields(self, job: str) -> dict[str, str]:
        """What the server itself says of a job or of one task."""
        said = self.read("qstat", "-x", "-f", "-w", job)
        pairs = (line.strip().partition(" = ") for line in said.splitlines() if " = " in line)
        return {name: value for name, _, value in pairs}

    def put_back(self, job: str) -> None:
        """Stop a job that runs and queue it again; the server does not wait for the end of what traps SIGTERM."""
        self._run(_HOSTS[0], "qrerun", job)

    @contextmanager
    def exclusive_nodes(self) -> Iterator[None]:
        """Nodes that one job has alone, as their own files have to say."""
        self._share_nodes("force_exclhost")
        try:
            yield
        finally:
            self._share_nodes("default_shared")

    def _share_nodes(self, sharing: str) -> None:
        for host in _HOSTS[1:]:
            definition = self._folder / f"{host}.definition"
            definition.write_text(f"$configversion 2\n{host}: sharing = {sharing}\n")
            self._run(host, "../sbin/pbs_mom", "-s", "remove", "sharing")
            done = self._run(host, "../sbin/pbs_mom", "-s", "insert", "sharing", str(definition))
            assert done.returncode == 0, done.stdout + done.stderr
            os.kill(int(Path(f"/opt/pbs/home/{host}/mom_priv/mom.lock").read_text()), signal.SIGHUP)
        wait_until("nodes changed", lambda: self.read("pbsnodes", "-a").count(f"= {sharing}") == 2, every=0.5)
        self.await_nodes()

    @contextmanager
    def settings(self, line: str, back: str) -> Iterator[None]:
        """One setting for a while."""
        self.set(line)
        try:
            yield
        finally:
            self.set(back)

    def start(self) -> None:
        for verb in ("up", "conf"):
            subprocess.run([self._tool, verb], check=True, capture_output=True, timeout=300)

    def stop(self) -> None:
        subprocess.run([self._tool, "down"], check=True, capture_output=True, timeout=120)

    def add_accounts(self) -> None:
        for host in _HOSTS:
            for name, uid in USERS.items():
                home = self._folder / name / "home"
                _add_line(_ETC / host / "passwd", f"{name}:x:{uid}:{uid}::{home}:/bin/bash")
                _add_line(_ETC / host / "group", f"{name}:x:{uid}:")

    def await_nodes(self) -> None:
        wait_until("both nodes are free", lambda: self.read("pbsnodes", "-a").count("state = free") == 2, every=0.5)


def _add_line(path: Path, line: str) -> None:
    name = line.partition(":")[0]
    kept = [each for each in path.read_text().splitlines() if each.partition(":")[0] != name]
    path.write_text("\n".join([*kept, line, ""]))


@contextmanager
def open_pbs(folder: Path) -> Iterator[OpenPbs]:
    """The OpenPBS of this machine: the one that runs, or one that is ended afterwards."""
    require_root()
    if not (_HERE / "qsub").exists():
        pytest.skip("OpenPBS is not installed: Debian has no package of it")
    pbs = OpenPbs(require_shared("tools/openpbs-peer"), folder)
    with (_HERE / "qsub").open("rb") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its accounts and its end belong to one process
        is_ours = not Path("/run/netns", _HOSTS[0]).exists()
        if is_ours:
            pbs.start()
        try:
            pbs.add_accounts()
            pbs.await_nodes()
            yield pbs
        finally:
            if is_ours:
                pbs.stop()
