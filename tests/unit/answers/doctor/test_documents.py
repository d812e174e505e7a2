# SPDX-License-Identifier: BSD-3-Clause
"""Every check has its place in the guide, and every page and anchor that a finding names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from kedge.answers.doctor.run_checks import list_checks
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY

LINK = re.compile(r"kedge help (?:doctor|run) [^\s\"']+")
SOURCES = sorted((REPOSITORY / "src/kedge/answers/doctor").rglob("*.py"))


def list_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", page.read_text(), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


def list_links(path: Path) -> set[str]:
    """The links to pages in a module's texts, with names that are put in replaced by what the module calls so."""
    tree = ast.parse(path.read_text())
    constants = {
        target.id: statement.value.value
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(LINK.findall(node.value))
        if isinstance(node, ast.JoinedStr):
            text = "".join(_show(part, constants) for part in node.values)
            found |= set(LINK.findall(text))
    return found


def _show(part: ast.expr, constants: Mapping[str, object]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    name = part.value.id if isinstance(part.value, ast.Name) else ""
    return str(constants.get(name, "?"))


@each_row("path", SOURCES, ids=lambda path: path.stem)
def test_findings_link_to_anchors_that_exist(path: Path) -> None:
    for link in list_links(path):
        topic, anchor = link.split()[2:]
        if "?" not in anchor:
            assert anchor in list_anchors(REPOSITORY / f"docs/guides/{topic}.md"), f"{path.name} names {link}"


def test_checks_links_and_anchors_are_found() -> None:
    found = {link for path in SOURCES for link in list_links(path)}
    assert "kedge help doctor user-namespaces" in found
    assert len([link for link in found if "?" not in link]) >= 25
    anchors = list_anchors(REPOSITORY / "docs/guides/doctor.md")
    assert not [each.name for each in list_checks() if each.name not in anchors]
    anchors = list_anchors(REPOSITORY / "docs/guides/run.md")
    assert "where-the-images-files-come-from" in anchors
    assert "where-user-namespaces-are-forbidden" in anchors
