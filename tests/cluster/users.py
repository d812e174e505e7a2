# SPDX-License-Identifier: BSD-3-Clause
"""Ordinary users of a cluster: each has a home, and runs kedge or any program on the login node."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.builders.containers import Runner, make_runner
from tests.builders.own_etc import Account

# Clusters have an /etc of their own, in which these are. Runs of the tests side by side have other numbers.
_FIRST = 20_000 + os.getpid() % 10_000 * 4
USERS = {"alice": _FIRST + 1, "bob": _FIRST + 2}


@dataclass(frozen=True, slots=True)
class ClusterUser(Runner):
    """`run`, `read` and `argv` are kedge's, as for every Runner; the other methods run any program as this user."""

    prefix: tuple[str, ...] = ()  # words that bring a program to the login node

    def argv(self, *words: str) -> list[str]:
        """The command line of kedge, as the user on the login node."""
        return [*self.prefix, *Runner.argv(self, *words)]

    def words(self, *program: str) -> list[str]:
        """The command line of any program, as the user on the login node."""
        if self.uid == os.getuid():
            return [*self.prefix, *program]
        user = str(self.uid)
        return [*self.prefix, "setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--", *program]

    def start_program(self, *program: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a program; its output can be read with `communicate`."""
        return subprocess.Popen(
            self.words(*program),
            env=self.variables(),
            cwd=cwd or self.home,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run_program(
        self, *program: str, env: Mapping[str, str] | None = None, stdin: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            self.words(*program),
            env=self.variables(env),
            cwd=cwd or self.home,
            text=True,
            input=stdin,
            capture_output=True,
            timeout=300,
            check=False,
        )

    def read_program(self, *program: str, stdin: str = "") -> str:
        """What a program prints; a failure fails the test."""
        done = self.run_program(*program, stdin=stdin)
        assert done.returncode == 0, f"{program}\n{done.stdout}{done.stderr}"
        return done.stdout


def list_accounts(homes: Path) -> list[Account]:
    """The users, as an /etc names them: each has a home in HOMES/USER/home, and a shell."""
    return [Account(name, uid, homes / name / "home", "/bin/bash") for name, uid in USERS.items()]


def make_user(folder: Path, uid: int, environment: Mapping[str, str], prefix: tuple[str, ...] = ()) -> ClusterUser:
    """A user with this directory; where we are not root it is ourselves."""
    number = uid if os.getuid() == 0 else os.getuid()
    folder.mkdir(exist_ok=True, parents=True)
    make_runner(folder, number)
    return ClusterUser(folder, number, dict(environment), prefix)
