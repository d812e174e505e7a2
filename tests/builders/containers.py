# SPDX-License-Identifier: BSD-3-Clause
"""Containers for tests: a small sandbox and SIF with busybox, and `kedge exec` as an ordinary user or as root.

The important tests run in both roles: as root, as CI is, and as a user without any right, as users are.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.builders.busybox import read_busybox
from tests.builders.removal import remove_beside
from tests.requirements import open_way, require_program, require_user_namespaces

# Nobody's number: no database knows it. Each process of tests has its own, and so limits and caches of its own.
# A second run on one machine names another number to begin with.
_FIRST_USER = int(os.environ.get("TESTS_FIRST_USER", "1507"))
USER = _FIRST_USER + 10 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PROGRAM = (sys.executable, "-m", "kedge")
_STARTS = ("exec", "run", "shell", "test")
APPLETS = (
    *("sh", "ls", "cat", "id", "pwd", "echo", "env", "true", "false", "sleep", "touch", "rm", "mkdir", "readlink"),
    *(
        "stat",
        "test",
        "grep",
        "head",
        "wc",
        "ps",
        "kill",
        "mount",
        "chmod",
        "hostname",
        "dd",
        "ln",
        "sort",
        "cut",
        "nc",
    ),
)


def make_sandbox(folder: Path, *, runscript: str = 'echo runs "$@"', environment: str = "") -> Path:
    """A directory that is an image: busybox, the files of a distribution that matter, and `.singularity.d`."""
    from kedge.image.formats.singularityd import fixed_files

    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "var/tmp", "root", "home", ".singularity.d/env"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "bin/busybox").write_bytes(read_busybox())
    (folder / "bin/busybox").chmod(0o755)
    for name in APPLETS:
        (folder / "bin" / name).symlink_to("busybox")
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (folder / "etc/group").write_text("root:x:0:\n")
    for name, text in fixed_files.ENVIRONMENT.items():
        _write_script(folder / ".singularity.d/env" / name, text)
    _write_script(folder / ".singularity.d/env/90-environment.sh", f"#!/bin/sh\n{environment}\n")
    _write_script(folder / ".singularity.d/runscript", f"#!/bin/sh\n{runscript}\n")
    return folder


def give_to(runner: Runner, folder: Path) -> Path:
    """Let the runner's user own a tree."""
    if os.getuid() == 0:
        for place, folders, names in os.walk(folder):
            for name in (*folders, *names, "."):
                os.chown(Path(place, name), runner.uid, runner.uid, follow_symlinks=False)
    return folder


def list_left(runner: Runner, *places: str) -> list[str]:
    """The files in places that a start may write to: those of the node and the cache, where no others are named."""
    found = [path for name in places or ("node", "cache") for path in (runner.folder / name).rglob("*")]
    return sorted(str(path) for path in found if not path.is_dir())


def _write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs `kedge` with a home and a node directory of its own."""

    folder: Path
    uid: int
    environment: dict[str, str] = field(default_factory=dict)
    # the checkout's, or one that was installed
    program: tuple[str, ...] = field(default=_PROGRAM, kw_only=True)
    # whether verbs that are no start of a container are run by a kedge that is loaded already
    is_warm: bool = field(default=False, kw_only=True)

    @property
    def home(self) -> Path:
        """The home directory of who runs it."""
        return self.folder / "home"

    def argv(self, *words: str) -> list[str]:
        """The command line, as the user."""
        return as_user(self.uid, [*self.program, *words])

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment it runs with: nothing of the tester's own but where Python is."""
        kept = {name: os.environ[name] for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
        own = {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "KEDGE_NODEDIR": str(self.folder / "node"),
            "KEDGE_CACHEDIR": str(self.folder / "cache"),
            "KEDGE_KEEP": "PYTHONPATH",
        }
        return {**kept, **own, **self.environment, **(more or {})}

    def run(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        variables, place = self.variables(env), cwd or self.home
        # a kernel that can less is played at the start of Python
        if self.is_warm and self.program == _PROGRAM and not is_start(words) and "REFUSED" not in variables:
            from tests.builders.warm_kedge import run_kedge  # late: most tests need none

            return run_kedge([*words], environment=variables, folder=place, user=self.uid, input=stdin, timeout=300)
        return self.call(self.argv(*words), env=env, cwd=cwd, stdin=stdin)

    def call(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run another command line to the end, with the runner's environment, from its home."""
        return subprocess.run(
            argv,
            env=self.variables(env),
            cwd=cwd or self.home,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def start(self, *words: str, env: Mapping[str, str] | None = None, pipes: str = "") -> subprocess.Popen[str]:
        """Start it; `pipes` names the streams that are some: `stdin stdout`."""
        streams = dict.fromkeys(pipes.split(), subprocess.PIPE)
        return subprocess.Popen(self.argv(*words), env=self.variables(env), cwd=self.home, text=True, **streams)

    def read(self, *words: str, **named: object) -> str:
        """What it prints; a failure fails the test."""
        done = self.run(*words, **named)  # type: ignore[arg-type]
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout


def is_start(words: Sequence[str]) -> bool:
    """Whether these words start a container: what kedge loads for that belongs to what is tested."""
    return words[0] in _STARTS or tuple(words[:2]) in (("instance", "start"), ("instance", "run"))


@pytest.fixture(scope="module")
def warm_runner() -> Iterator[Runner]:
    """For files that name it `runner`: an ordinary user for whom verbs need not start."""
    yield from each_role("user", is_warm=True)


def as_user(uid: int, words: list[str]) -> list[str]:
    """A command line that runs as this user."""
    if uid == os.getuid():
        return words
    user = str(uid)
    return [require_program("setpriv"), "--reuid", user, "--regid", user, "--clear-groups", *words]


def run_after(
    setup: str, runner: Runner, *words: str, env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run kedge as the runner's user in a mount namespace that root has changed before."""
    script = f"set -e; {setup}; exec {shlex.join(runner.argv(*words))}"
    return subprocess.run(
        [require_program("unshare"), "--mount", "sh", "-c", script],
        env=runner.variables(env),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def make_runner(folder: Path, uid: int, *, is_warm: bool = False) -> Runner:
    """A runner whose directories its user owns."""
    for name in ("home", "node", "cache"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        if os.getuid() == 0:
            os.chown(folder / name, uid, uid)
    open_way(folder)
    return Runner(folder, uid, is_warm=is_warm)


def each_role(role: str, *, is_warm: bool = False) -> Iterator[Runner]:
    """A fixture's body: `user` is an ordinary user, `root` is root where we are.

    The directory is not pytest's: each start of pytest closes those to all others.
    """
    if role == "root" and os.getuid() != 0:
        pytest.skip("needs real root")
    if role == "user":
        require_user_namespaces()
    uid = os.getuid() if role == "root" or os.getuid() != 0 else USER
    folder = Path(tempfile.mkdtemp(prefix=f"kedge-{role}-"))
    try:
        yield make_runner(folder, uid, is_warm=is_warm)
    finally:
        remove_beside(folder)
