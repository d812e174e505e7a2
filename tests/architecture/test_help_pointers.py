# SPDX-License-Identifier: BSD-3-Clause
"""kedge points to guides by commands, not by files of the repository, and every topic and section exists."""

from __future__ import annotations

import re

import pytest

from kedge.cli.topics import TOPICS, VERB_GUIDES, list_sections, read_topic
from kedge.cli.verbs import VERBS
from tests.architecture.source_tree import read_modules

PAGE = re.compile(r"\b(?:docs|guides|reference|adr)/[\w/-]+\.md|\bREADME\b|\w+\.md#")
POINTER = re.compile(r"kedge help ([a-z][a-z-]*)(?: ([a-z][a-z0-9-]*))?(?=['\".;,) ]|$)")
PAGES = {"topics.py", "made_pages.py"}  # where pages lie, and pages themselves


def test_pointers_are_commands() -> None:
    wrong = [
        f"{module.shown}: {node.value}"
        for module in read_modules().values()
        if module.path.name not in PAGES
        for node in module.list_texts()
        if PAGE.search(node.value)
    ]
    assert not wrong, "\n".join(wrong)


def test_pointers_lead_somewhere() -> None:
    texts = (node.value for module in read_modules().values() for node in module.list_texts())
    found = {match.groups() for text in texts for match in POINTER.finditer(text)}
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
