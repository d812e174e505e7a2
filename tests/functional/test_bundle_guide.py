# SPDX-License-Identifier: BSD-3-Clause
"""The steps of docs/guides/install.md for the one file, typed as they stand there, by an ordinary user.

The cluster's login node is a root file system that has no Python: busybox alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.bundles import BareHost, make_bundle, make_busybox_host
from tests.builders.containers import USER, Runner, as_user, each_role
from tests.requirements import REPOSITORY

pytestmark = [pytest.mark.root, pytest.mark.slow]

GUIDE = (REPOSITORY / "docs/guides/install.md").read_text().partition("## One file\n")[2].partition("\n## ")[0]
# The user's own files are reached through the directory that is the cluster's home; programs run there by `enter`.
SSH = '#!/bin/sh\n[ "$1" = CLUSTER ] && shift && cd "{home}" && exec "$@"\n'
SCP = '#!/bin/sh\ncase $2 in CLUSTER:*) exec cp "$1" "{home}/${{2#CLUSTER:}}" ;; esac\nexit 1\n'


@pytest.fixture(scope="module")
def host() -> Iterator[BareHost]:
    """The directory is not pytest's, which are closed to the user."""
    folder = Path(tempfile.mkdtemp(prefix="kedge-guide-"))
    folder.chmod(0o755)
    try:
        host = make_busybox_host(folder / "root")
        host.command.unlink()  # it comes by scp
        yield host
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def workstation(host: BareHost) -> Iterator[Runner]:
    for runner in each_role("user"):
        tools = runner.folder / "tools"
        tools.mkdir()
        kedge = f'#!/bin/sh\nexec {runner.program[0]} -m kedge "$@"\n'
        for name, text in (("ssh", SSH), ("scp", SCP), ("kedge", kedge)):
            (tools / name).write_text(text.format(home=host.home))
            (tools / name).chmod(0o755)
        yield runner


def list_steps() -> list[tuple[str, str]]:
    """The commands, and what the guide shows below each."""
    block = re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)[0].replace("x86_64", os.uname().machine)
    return [(step.partition("\n")[0], step.partition("\n")[2]) for step in block.split("$ ")[1:]]


def enter(host: BareHost, line: str) -> subprocess.CompletedProcess[str]:
    """A line in the cluster's shell, after what the guide adds to ~/.bashrc."""
    [path] = re.findall(r"`(export PATH=[^`]*)`", GUIDE)
    return host.run("-c", f"{path}; {line}", program="/bin/sh")


def test_guide_steps_bring_the_file_to_the_cluster(host: BareHost, workstation: Runner) -> None:
    steps = list_steps()
    assert [line.split()[0] for line, _ in steps] == ["kedge", "ssh", "ssh"]
    for line, shown in steps:
        environment = workstation.variables({"PATH": f"{workstation.folder}/tools:/usr/bin:/bin"})
        argv = as_user(workstation.uid, ["sh", "-c", line])
        done = subprocess.run(
            argv, env=environment, cwd=workstation.home, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said = re.sub(r"[\d.]+ MB", "N MB", done.stdout + done.stderr)
        assert said == re.sub(r"[\d.]+ MB", "N MB", shown)
    assert (host.home / "bin/kedge").read_bytes() == make_bundle().read_bytes(), "each comes out the same"
    first = enter(host, "kedge --version")
    assert (first.returncode, first.stdout.startswith("kedge version ")) == (0, True), first.stderr


def test_guide_update_leaves_running_programs_alone(host: BareHost, workstation: Runner) -> None:
    code = "import sys; print(1, flush=True); sys.stdin.read(1); import kedge.api, sqlite3; print(2)"
    program = ["-c", f'export PATH="$HOME/bin:$PATH"; kedge python -c "{code}"']
    running = subprocess.Popen(
        host.argv(*program, program="/bin/sh"), env=host.environment(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == "1\n"
    assert enter(host, "cp bin/kedge bin/kedge-new && mv bin/kedge-new bin/kedge && kedge --version").returncode == 0
    assert running.communicate("x", timeout=60)[0] == "2\n"


def test_guide_what_else(host: BareHost, workstation: Runner) -> None:
    assert enter(host, "cd bin && ln -s kedge kedge-pyxis && kedge-pyxis --help").returncode == 0
    removed = enter(host, f"rm -r bin/kedge /var/tmp/kedge-{USER}/bundle")
    assert removed.returncode == 0, removed.stderr
    assert not list((host.root / "var/tmp").rglob("bundle"))
