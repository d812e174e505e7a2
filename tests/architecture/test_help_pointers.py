# SPDX-License-Identifier: BSD-3-Clause
"""kedge points to guides by commands, not by files of the repository, and every topic and section exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.cli.topics import TOPICS, VERB_GUIDES, list_sections, read_topic
from kedge.cli.verbs import VERBS
from tests.requirements import REPOSITORY

SOURCES = sorted((REPOSITORY / "src/kedge").rglob("*.py"))
PAGE = re.compile(r"\b(?:docs|guides|reference|adr)/[\w/-]+\.md|\bREADME\b|\w+\.md#")
POINTER = re.compile(r"kedge help ([a-z][a-z-]*)(?: ([a-z][a-z0-9-]*))?(?=['\".;,) ]|$)")
TABLE = "topics.py"  # the one place that knows where pages lie


def list_texts(path: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def test_pointers_are_commands() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}: {text}"
        for path in SOURCES
        if path.name != TABLE
        for text in list_texts(path)
        if PAGE.search(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_pointers_lead_somewhere() -> None:
    found = {match.groups() for path in SOURCES for text in list_texts(path) for match in POINTER.finditer(text)}
    assert len(found) > 20
    wrong = [
        f"kedge help {topic} {section or ''}"
        for topic, section in sorted(found, key=str)
        if not (topic in TOPICS and (section is None or section in list_sections(read_topic(topic))))
        and not (topic in VERBS and topic not in TOPICS)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_topics_have_a_page_and_one_line(topic: str) -> None:
    assert read_topic(topic).startswith("# ")
    assert len(TOPICS[topic][1]) <= 80


def test_topics_of_verbs_exist() -> None:
    assert set(VERB_GUIDES) <= set(VERBS)
    assert set(VERB_GUIDES.values()) <= set(TOPICS)
