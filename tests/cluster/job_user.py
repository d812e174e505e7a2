# SPDX-License-Identifier: BSD-3-Clause
"""An ordinary user who works with jobs by kedge's verbs; each test has one with a directory and records of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from tests.builders.once import make_once
from tests.cluster.daemons import wait_until
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.users import ClusterUser

# prints its arguments and the variable NOTE as JSON, whatever is in them
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('NOTE')]), flush=True)"
SMALL = "sh,hostname,sleep,tail,printf,cat,readlink,env,ls"  # programs of images
PYTHON = "python3,sh"
HOSTILE = (
    *("a b", "it's", '"q"', 'it\'s "both"', "$(id)", "`id`", "$HOME", "\\", "\\n", "two\nlines", "é日本🎉", "*", "%j"),
    *("", "#x", "-n", "--", "--env", "!", "a;b&c|d>e", "\ttab", "trailing\n", "{id}", "~", "=", "'"),
)


@dataclass(frozen=True, slots=True)
class JobUser:
    """`kedge` is run in `folder`, which compute nodes see."""

    user: ClusterUser
    folder: Path
    site: str = "generic-slurm"

    @property
    def records(self) -> Path:
        """The directories of this user's records."""
        return self.folder / "state/kedge/jobs/records"

    def with_environment(self, **variables: str) -> Self:
        """The same user with more variables."""
        return replace(self, user=replace(self.user, environment={**self.user.environment, **variables}))

    def run(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """A verb of kedge to its end."""
        return self.user.run(*words, cwd=self.folder, stdin=stdin)

    def read(self, *words: str) -> str:
        """What a verb prints; a failure fails the test."""
        done = self.run(*words)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def start(self, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """A verb that is left running."""
        return subprocess.Popen(
            self.user.argv(*words),
            env=self.user.variables(),
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )

    def submit(self, *words: str) -> str:
        """The id of a new job."""
        return self.read("submit", *words).strip()

    def submit_shell(self, command: str, *options: str) -> str:
        """The id of a job that runs a line of shell on the node itself."""
        return self.submit(*options, "-", "sh", "-c", command)

    def tell(self, *words: str) -> Any:
        """What a verb tells with --json."""
        return json.loads(self.read(words[0], "--json", *words[1:]))

    def status(self, job: str) -> dict[str, Any]:
        """The only task of a job."""
        [found] = self.tell("status", job)["tasks"]
        assert isinstance(found, dict)
        return found

    def wait(self, job: str) -> None:
        """Wait until a job is over, however it ended."""
        done = self.run("wait", job, "--timeout", "240s")
        assert "after the timeout" not in done.stderr, done.stderr

    def run_shell(self, command: str, *options: str) -> str:
        """What a line of shell printed as a job."""
        return self.run_job(*options, "-", "sh", "-c", command)

    def run_job(self, *words: str) -> str:
        """What a job printed that has to end well."""
        id = self.submit(*words)
        done = self.run("wait", id, "--timeout", "240s")
        logs = self.run("logs", id)
        assert done.returncode == 0, f"{words}\n{done.stderr}\n{logs.stdout}{logs.stderr}"
        return logs.stdout

    def await_state(self, job: str, state: str) -> dict[str, Any]:
        """Wait until the only task of a job is in a state."""
        wait_until(f"{job} is {state}", lambda: self.status(job)["state"] == state, every=0.5)
        return self.status(job)

    def await_file(self, name: str) -> None:
        """Wait until a file of the directory exists."""
        wait_until(f"{name} is there", (self.folder / name).exists)

    def write(self, name: str, text: str, *, mode: int = 0o755) -> Path:
        """A file of the user in the directory."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        path.chmod(mode)
        os.chown(path, self.user.uid, self.user.uid)
        return path

    def take_tools(self, name: str = "tools.sif", programs: str = SMALL) -> str:
        """The name of an image in the directory that has these programs of this host."""
        path = shutil.copy(pack_tools(programs), self.folder / name)
        os.chown(path, self.user.uid, self.user.uid)
        return name


def make_job_user(cluster: SlurmCluster | GridEngineCell, **variables: str) -> JobUser:
    """A user of the cluster with a fresh directory for files, records and images."""
    user = cluster.user()
    folder = user.home / f"work-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    os.chown(folder, user.uid, user.uid)
    own = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data"), **variables}
    return JobUser(replace(user, environment={**user.environment, **own}), folder)


@contextlib.contextmanager
def leaving_nothing(cluster: SlurmCluster | GridEngineCell) -> Iterator[JobUser]:
    """A user of the cluster, whose jobs are all cancelled afterwards."""
    user = make_job_user(cluster)
    yield user
    user.run("cancel", "--all")


def pack_tools(programs: str = SMALL) -> Path:
    """An image with programs of this host, packed once in a run of the tests."""

    def pack(path: Path) -> None:
        words = [sys.executable, "-m", "kedge", "--quiet", "pull", "--format", "sif", str(path), f"host:{programs}"]
        own = {"PATH": "/usr/local/bin:/usr/bin:/bin"}  # no program from the home of whoever runs the tests
        subprocess.run(words, check=True, env={**os.environ, **own})

    return make_once(f"{programs}.sif", pack)


def quote_words(words: Sequence[str]) -> str:
    """Words as a shell takes them."""
    return shlex.join(words)
