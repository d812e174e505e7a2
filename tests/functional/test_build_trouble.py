# SPDX-License-Identifier: BSD-3-Clause
"""Steps that go wrong: killed for memory, looked at in a shell, and as exceptions of the Python interface."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.builders.containers import as_user
from tests.builders.control_group import enter_group, memory_group
from tests.requirements import REPOSITORY
from tests.wording import assert_says

shop = warm_shop

LIMIT = 160 << 20
API = """
import kedge
from kedge.errors import KedgeError

class Watcher:
    def begin(self, label): print("begin", label.text)
    def output(self, label, data): print("output", data.decode().strip())
    def end(self, outcome): print("end", outcome.state)

built = kedge.build("good.Dockerfile", "out.sif", display=Watcher())
print("built", built.path, built.size > 0, built.digest[:7], [step.state for step in built.steps], built.log.exists())
try:
    kedge.build("bad.Dockerfile", "bad.sif")
except KedgeError as problem:
    print("failed", type(problem).__name__, problem.message, "|", problem.context["output"], problem.context["line"])
try:
    kedge.build("wrong.Dockerfile", "bad.sif")
except KedgeError as problem:
    print("failed", type(problem).__name__, problem.message)
"""


@pytest.mark.root
def test_a_step_that_the_kernel_kills_for_memory_is_explained(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN tail /dev/zero || exit 3\n")
    with memory_group(LIMIT) as group:
        argv = enter_group(group, shop.runner.argv("build", "out.sif", "."))
        done = subprocess.run(
            argv, env=shop.runner.variables(), cwd=shop.context, capture_output=True, text=True, check=False
        )
    assert done.returncode == 91, done.stderr
    assert_says(done.stderr, "build/failed-status-memory-ran-out", 3)
    assert f"may use {LIMIT / 1e6:.3g} MB" in done.stderr
    assert_says(done.stderr, "build/let-step-use-fewer-processes")


def test_shell_on_error_is_a_terminal_in_the_failed_step(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}ENV MINE=yes\nRUN echo made > /left; false\n")
    argv = shop.runner.argv("build", "--shell-on-error", "out.sif", ".")
    ours, theirs = pty.openpty()
    environ = shop.runner.variables({"TERM": "xterm"})
    with subprocess.Popen(argv, env=environ, cwd=shop.context, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown = read_until(ours, "'exit' ends it")
        shown += read_until(ours, "[#$] ")
        os.write(ours, b"cat /left; echo mine=$MINE; tty; exit 7\n")
        shown += read_until(ours, "hint: ")
        status = child.wait(timeout=60)
    os.close(ours)
    assert status == 91, shown
    assert re.search(r"^made\r?$", shown, re.MULTILINE), shown
    assert "mine=yes" in shown
    assert "/dev/" in shown
    assert "'RUN echo made > /left; false' failed with status 1" in shown
    assert shop.list_builds() == []
    assert not (shop.context / "out.sif").exists()


def test_shell_on_error_without_a_terminal_fails_as_usual(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN false\n")
    done = shop.start("--shell-on-error", "out.sif", ".")
    assert done.returncode == 91
    assert "--shell-on-error opens no shell: standard input is not a terminal" in done.stderr


def test_python_builds_and_failures_are_exceptions(shop: Workshop) -> None:
    shop.write("good.Dockerfile", f"{SHELL}RUN echo working\n")
    shop.write("bad.Dockerfile", f"{SHELL}RUN echo trouble; false\n")
    shop.write("wrong.Dockerfile", "FROM scratch\nCOPPY a b\n")
    argv = as_user(shop.runner.uid, [shop.runner.program[0], "-c", API])
    environ = shop.runner.variables({"PYTHONPATH": str(REPOSITORY / "src")})
    done = subprocess.run(argv, env=environ, cwd=shop.context, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "begin RUN echo working" in lines
    assert "output working" in lines
    assert (lines.count("end cached"), lines.count("end done")) == (2, 1)
    assert "built out.sif True sha256: ['cached', 'cached', 'done'] True" in lines
    assert "failed BuildFailed bad.Dockerfile:4:1: 'RUN echo trouble; false' failed with status 1 | trouble 4" in lines
    assert any(line.startswith("failed InvalidRecipe wrong.Dockerfile:2:1: ") for line in lines)
    assert not Path(shop.context, "bad.sif").exists()
    assert json.loads(shop.runner.read("cache", "verify", "--json"))["removed"] == []


def read_until(terminal: int, pattern: str) -> str:
    """What comes on the terminal, up to the pattern."""
    shown, end = "", time.monotonic() + 60
    while not re.search(pattern, shown):
        assert time.monotonic() < end, shown
        try:
            shown += os.read(terminal, 4096).decode(errors="replace")
        except OSError:
            break
    return shown
