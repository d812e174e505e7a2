# SPDX-License-Identifier: BSD-3-Clause
"""The sentences that users read keep to one glossary: a word for each thing, and no riddles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.compat.contents.size_report import list_leftover_rules
from kedge.compat.failures.catalogue import SHIPPED, read_failures
from kedge.jobs.scripts.rules import list_rules
from tests.architecture.source_tree import Module, parse_module, read_modules
from tests.requirements import REPOSITORY

# What is not said, and what is said instead.
GLOSSARY = {
    r"\bfolders?\b": "directory",
    r"\bFOLDER\b": "DIRECTORY",
    r"(?<!word )\bprocessors?\b": "CPU, or architecture",
    r"\bthings?\b": "item, or the noun of what it is",
    r"\ba way out\b": "internet access",
    r"\bfound out\b": "default: detected; or what kedge detected",
    r"\bnot known\b": "unknown",
    r"\b(?:the|its|a|this|your) store\b": "cache",
    r"\b(?:ended|end|ends) well\b": "completed",
    r"\bhow (?:it|they|a job|the job) (?:is|are)\b": "state",
    r"\bnobody to ask\b": "no terminal",
    r"\bas is said\b": "unless noted",
}
ANY_OF_THEM = re.compile("|".join(GLOSSARY))  # one search of most sentences
GUIDES = sorted(page for place in ("guides", "sites", "tasks") for page in (REPOSITORY / "docs" / place).glob("*.md"))
GUIDES += [
    REPOSITORY / f"docs/{name}.md" for name in ("index", "administrators", "tutorials-compared", "tutorials-mended")
]


def list_sentences(module: Module) -> Iterator[tuple[int, str]]:
    """Strings of more than a word that are no docstrings."""
    return ((node.lineno, node.value) for node in module.list_texts() if " " in node.value)


def list_data_sentences() -> Iterator[tuple[int, str]]:
    """What kedge says by its tables, by the number of the entry; patterns and examples quote other programs."""
    for number, failure in enumerate(read_failures(SHIPPED)[0], 1):
        yield from ((number, failure.cause), (number, failure.remedy))
    for number, rule in enumerate(list_rules(), 1):
        yield from ((number, rule.title), (number, rule.remedy))
    for number, leftover in enumerate(list_leftover_rules(), 1):
        yield from ((number, leftover.title), (number, leftover.note))


def list_breaches(where: str, sentences: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"{where}:{line}: say {better!r}: {sentence.strip()[:100]}"
        for line, sentence in sentences
        if ANY_OF_THEM.search(sentence)
        for word, better in GLOSSARY.items()
        if re.search(word, sentence)
    ]


def test_voice_of_messages_and_help_keeps_to_the_glossary() -> None:
    breaches = []
    for module in read_modules().values():
        breaches += list_breaches(module.shown, list_sentences(module))
    breaches += list_breaches("src/kedge/data", list_data_sentences())
    assert not breaches, "\n" + "\n".join(breaches)


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", *GUIDES], ids=lambda page: page.name)
def test_voice_of_pages_keeps_to_the_glossary(page: Path) -> None:
    without_code = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    breaches = list_breaches(page.name, iter(enumerate(without_code.split("\n"), 1)))
    assert not breaches, "\n" + "\n".join(breaches)


def test_voice_would_notice_a_breach() -> None:
    text = '"""A folder in a docstring is fine."""\nTEXT = "the folder is missing"\n'
    module = parse_module("module", Path("module.py"), text, is_package=False, known=set())
    assert len(list_breaches("module.py", list_sentences(module))) == 1
