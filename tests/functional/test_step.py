# SPDX-License-Identifier: BSD-3-Clause
"""Containers as children of a program: one after the other in the same root, and side by side from threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kedge.errors import CannotStart
from kedge.runtime.start.step import run_step
from tests.builders.containers import make_sandbox
from tests.requirements import require_user_namespaces


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
