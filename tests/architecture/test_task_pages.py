# SPDX-License-Identifier: BSD-3-Clause
"""Pages of docs/tasks are short and alike: commands that fit a terminal, what to do if it fails, where more is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kedge.cli.topics import TASKS
from tests.requirements import REPOSITORY

PAGES = sorted((REPOSITORY / "docs/tasks").glob("*.md"))
BLOCK = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_tasks_are_topics_and_in_the_site() -> None:
    assert {f"tasks/{page.name}" for page in PAGES} == {page for page, _ in TASKS.values()}
    site = (REPOSITORY / "mkdocs.yml").read_text()
    assert all(f": tasks/{page.name}\n" in site for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_task_is_read_in_two_minutes(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= 100
    assert [line for block in BLOCK.findall(text) for line in block.splitlines() if len(line) > 88] == []
    assert text.split("\n\n")[1].startswith("You ")
    assert "\n## If it fails\n" in text
    assert re.search(r"^More: .*\.md", text, re.MULTILINE)
