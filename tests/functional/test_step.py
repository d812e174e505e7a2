# SPDX-License-Identifier: BSD-3-Clause
"""Containers as children of a program: one after the other in the same root, and side by side from threads."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kedge.container.start.step import run_step
from kedge.errors import CannotStart, ProgramFailed
from tests.builders.containers import each_role, give_to, make_sandbox
from tests.builders.sleepers import find_sleepers, make_seconds
from tests.requirements import require_user_namespaces

# What an ordinary user's program does: two steps at once in one root, as root of the container.
PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from kedge.container.start.step import run_step

def step(number):
    return run_step(sys.argv[1], ["sh", "-c", f"id -u; exit {number}"], options=["--fakeroot"])

with ThreadPoolExecutor(2) as pool:
    print([(done.status, done.text) for done in pool.map(step, (0, 7))])
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    require_user_namespaces()
    monkeypatch.setenv("KEDGE_NODEDIR", str(tmp_path / "node"))
    monkeypatch.chdir(tmp_path)
    return str(make_sandbox(tmp_path / "root"))


def test_steps_build_on_what_the_one_before_wrote(root: str, tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "root/mnt").mkdir()
    (tmp_path / "context/word").write_text("given")
    options = ["--writable", "--no-home"]
    first = run_step(
        root,
        ["sh", "-c", 'cat /mnt/word > /made; printf " %s %s" "$VALUE" "$(pwd)" >> /made; exit 3'],
        binds=[f"{tmp_path}/context:/mnt:ro"],
        environment={"VALUE": "a$b"},
        directory="/etc",
        options=options,
    )
    assert (first.status, first.output) == (3, b"")
    second = run_step(root, ["cat", "/made"], options=options)
    assert (second.status, second.text) == (0, "given a$b /etc")


def test_steps_run_side_by_side(root: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda number: run_step(root, ["sh", "-c", f"exit {number}"]).status, range(8)))
    assert ended == list(range(8))


def test_step_raises_what_kedge_could_not_do(root: str) -> None:
    with pytest.raises(CannotStart, match="executable file not found"):
        run_step(root, ["nosuch"])
    assert run_step(root, ["sh", "-c", "exit 255"]).status == 255


def test_step_as_root_of_the_container_by_an_ordinary_user() -> None:
    for runner in each_role("user"):
        image = give_to(runner, make_sandbox(runner.folder / "image"))
        words = runner.argv()
        argv = [*words[: words.index(sys.executable)], sys.executable, "-c", PROGRAM, str(image)]
        done = runner.call(argv)
        assert done.stdout == "[(0, '0\\n'), (7, '0\\n')]\n", done.stderr


def test_step_with_its_own_process_ids_leaves_no_process(root: str) -> None:
    began, seconds = time.monotonic(), make_seconds()
    done = run_step(root, ["sh", "-c", f"sleep {seconds} & echo started"], options=["--pid"])
    assert (done.status, done.text) == (0, "started\n")
    with pytest.raises(ProgramFailed, match="gave no answer within 1 s"):
        run_step(root, ["sh", "-c", f"sleep {seconds} & sleep {seconds}"], options=["--pid"], timeout=1)
    assert time.monotonic() - began < 60
    deadline = time.monotonic() + 10
    while find_sleepers(seconds) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not find_sleepers(seconds)
