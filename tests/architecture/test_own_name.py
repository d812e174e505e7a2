# SPDX-License-Identifier: BSD-3-Clause
"""Nothing installs kedge by its name from an index: there the name may be another project's."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.requirements import REPOSITORY

BY_NAME = re.compile(
    r"\b(?:pip3?|uv pip|uv tool|pipx|conda|mamba)\s+(?:install|upgrade|inject|run)\b[^\n`|;&]*?\s'?kedge(?![\w/.+-])"
    r"|\buvx\s+kedge\b"
)


def find_by_name(text: str) -> list[str]:
    return [match[0] for match in BY_NAME.finditer(text) if "--no-index" not in match[0]]


@pytest.mark.parametrize(
    "line",
    [
        "pip install kedge",
        "pip install --upgrade kedge",
        "pip install 'kedge[plot]'",
        "uv tool install kedge",
        "uvx kedge",
    ],
)
def test_lines_that_ask_an_index_are_found(line: str) -> None:
    assert find_by_name(f"hint: {line}, or so")


@pytest.mark.parametrize(
    "line",
    [
        "pip install .",
        "pip install kedge/",
        "pip install --no-index --find-links kedge-bundle kedge",
        "pip install ./kedge",
    ],
)
def test_lines_that_ask_no_index_are_not(line: str) -> None:
    assert not find_by_name(line)


def test_no_hint_page_or_script_asks_an_index() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found = []
    for name in listed.stdout.splitlines():
        path = REPOSITORY / name
        if name == "tests/architecture/test_own_name.py" or not path.is_file():
            continue
        found += [f"{name}: {line}" for line in find_by_name(path.read_text(encoding="utf-8", errors="replace"))]
    assert found == []
