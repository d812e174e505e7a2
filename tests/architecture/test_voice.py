# SPDX-License-Identifier: BSD-3-Clause
"""The sentences that users read keep to one glossary: a word for each thing, and no riddles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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
GUIDES = sorted(page for place in ("guides", "sites", "tasks") for page in (REPOSITORY / "docs" / place).glob("*.md"))
GUIDES += [
    REPOSITORY / f"docs/{name}.md" for name in ("index", "administrators", "tutorials-compared", "tutorials-mended")
]


def list_sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of more than a word that are no docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    unspoken = docstrings | _list_quotations(tree)
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unspoken
        if is_text and " " in node.value:
            yield node.lineno, node.value


def _list_quotations(tree: ast.Module) -> set[int]:
    """What the catalogue of failures quotes of other programs: patterns and examples."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    failures = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Failure"]
    quoted = [
        part
        for call in failures
        for part in (*call.args[1:2], *(word.value for word in call.keywords if word.arg in ("examples", "unless")))
    ]
    return {id(node) for part in quoted for node in ast.walk(part)}


def list_breaches(where: str, sentences: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"{where}:{line}: say {better!r}: {sentence.strip()[:100]}"
        for line, sentence in sentences
        for word, better in GLOSSARY.items()
        if re.search(word, sentence)
    ]


def test_voice_of_messages_and_help_keeps_to_the_glossary() -> None:
    breaches = []
    for path in sorted((REPOSITORY / "src/kedge").rglob("*.py")):
        breaches += list_breaches(str(path.relative_to(REPOSITORY)), list_sentences(path))
    assert not breaches, "\n" + "\n".join(breaches)


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", *GUIDES], ids=lambda page: page.name)
def test_voice_of_pages_keeps_to_the_glossary(page: Path) -> None:
    without_code = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    breaches = list_breaches(page.name, iter(enumerate(without_code.split("\n"), 1)))
    assert not breaches, "\n" + "\n".join(breaches)


def test_voice_would_notice_a_breach(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text('"""A folder in a docstring is fine."""\nTEXT = "the folder is missing"\n')
    assert len(list_breaches("module.py", list_sentences(tmp_path / "module.py"))) == 1
