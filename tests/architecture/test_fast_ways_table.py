# SPDX-License-Identifier: BSD-3-Clause
"""The table of fast ways names what there is: code that does it, and a test that compares it. Needs nothing."""

from __future__ import annotations

import re

from tests.requirements import REPOSITORY

SECTION = "### Fast ways and their plain twins"
SOURCES = REPOSITORY / "src/kedge"


def read_rows() -> list[list[str]]:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text().partition(SECTION)[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_each_fast_way_is_there_and_has_a_test() -> None:
    files = {path.name for path in SOURCES.rglob("*.py")}
    code = "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))
    missing, tests = [], ""
    rows = read_rows()
    for fast, _, compared in rows:
        names = re.findall(r"`([^`]+)`", fast)
        missing += [name for name in names if name not in files and f"def {name.rpartition('.')[2]}(" not in code]
        tests = tests if compared == "the same" else compared
        missing += [] if re.findall(r"`tests/\S+\.py`", tests) else [fast]
    assert not missing
    assert len(rows) > 9
    twins = [str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "tests").rglob("test_*_fast_ways.py")]
    assert not [path for path in twins if path not in str(rows)]
