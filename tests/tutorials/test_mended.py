# SPDX-License-Identifier: BSD-3-Clause
"""docs/tutorials-mended.md: its counts are those of its rows, its quotations stand in their lines, and what it names as
evidence exists; commands that show something are run. Needs no network."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from kedge.cli.main import main
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_shared
from tests.tutorials.test_compared import LESSONS, split_row

PAGE = (REPOSITORY / "docs/tutorials-mended.md").read_text(encoding="utf-8")
_CODE = re.compile(r"`([^`]+)`")
_SHOWS = re.compile(r"`kedge ([^`]+)` shows `([^`]+)`")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_STATES = {"before": ("not", "partly"), "now": ("partly", "done")}
MOST_PARTLY = 5


def read_rows(title: str) -> list[list[str]]:
    """Line, what is wanted, before, now and evidence of each item of a tutorial."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [split_row(line) for line in section.splitlines() if re.match(r"\| \d", line)]


ROWS = [(title, row) for title in LESSONS for row in read_rows(title)]
SHOWN = [found for _, row in ROWS for found in _SHOWS.findall(row[4])]


def read_state(cell: str) -> str:
    return re.split(r"[:\s]", cell, maxsplit=1)[0]


@each_row("title", LESSONS)
def test_mended_counts_are_those_of_the_rows(title: str) -> None:
    rows = read_rows(title)
    before, now = ([read_state(row[column]) for row in rows] for column in (2, 3))
    assert set(before) <= set(_STATES["before"])
    assert set(now) <= set(_STATES["now"])
    counted = [
        *(len(rows), before.count("not"), before.count("partly")),
        *(now.count("not"), now.count("partly"), now.count("done")),
    ]
    [summary] = re.findall(rf"^\| {title} \|.*$", PAGE, re.MULTILINE)
    assert [int(cell) for cell in split_row(summary)[1:]] == counted


def test_mended_nothing_is_missing_and_little_is_partly() -> None:
    partly = [row for _, row in ROWS if read_state(row[3]) == "partly"]
    assert len(ROWS) >= 29
    assert f"met these gaps: {len(ROWS)} items" in PAGE
    assert len(partly) <= MOST_PARTLY
    assert all(len(row[3]) > 60 for row in partly), "each has its reason"


@each_row("title", LESSONS)
def test_mended_quotations_stand_in_their_lines(title: str) -> None:
    [path] = require_shared("tutorials").glob(f"{LESSONS[title][0].document}_*")
    lines = path.read_text(encoding="utf-8").splitlines()
    for row in read_rows(title):
        assert any(quoted in lines[int(row[0]) - 1] for quoted in _CODE.findall(row[1])), row


def test_mended_evidence_exists() -> None:
    for _, row in ROWS:
        assert _TEST.search(row[4]) or _SHOWS.search(row[4]), row
        for path, name in _TEST.findall(row[4]):
            tree = ast.parse((REPOSITORY / path).read_text())
            assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, row
        rest = _SHOWS.sub("", _TEST.sub("", row[4]))
        assert not _CODE.search(rest), f"neither a test nor a command that shows something: {rest}"


@each_row("words, text", SHOWN)
def test_mended_commands_show_it(
    words: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "--offline" in words
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KEDGE_CACHEDIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    status = main(shlex.split(words))
    said = capfd.readouterr()
    assert status == 0, said.err
    assert text in said.out + said.err
