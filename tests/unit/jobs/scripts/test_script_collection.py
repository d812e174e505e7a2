# SPDX-License-Identifier: BSD-3-Clause
"""The list of public scripts by which the rules are judged: complete enough to judge again, and as the guide says."""

from __future__ import annotations

import re

from kedge.jobs.scripts.findings import Severity
from kedge.jobs.scripts.rules import list_rules
from tests.requirements import REPOSITORY


def _rows() -> list[list[str]]:
    lines = (REPOSITORY / "bench" / "scripts.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def test_collection_names_every_script_once() -> None:
    rows = _rows()
    assert len(rows) >= 100
    assert len({(repository, path) for _, repository, _, path, _ in rows}) == len(rows)
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for _, _, commit, _, _ in rows)
    assert {kind for kind, *_ in rows} == {"tuned", "fresh"}


def test_collection_counts_warnings_of_rules_that_are() -> None:
    warnings = {rule.id for rule in list_rules() if rule.severity is Severity.WARNING}
    for *_, counts in _rows():
        for each in counts.split():
            rule, found, true = re.fullmatch(r"([\w-]+)=(\d+)/(\d+)", each).groups()  # type: ignore[union-attr]
            assert rule in warnings
            assert int(true) <= int(found)


def test_collection_is_as_large_as_the_guide_says() -> None:
    guide = (REPOSITORY / "docs" / "guides" / "scripts.md").read_text()
    repositories = {repository for _, repository, *_ in _rows()}
    assert f"{len(_rows())} public scripts of {len(repositories)} repositories" in guide
