# SPDX-License-Identifier: BSD-3-Clause
"""BuildKit's checks are findings of `kedge recipe lint`, unless the file says to skip them."""

from __future__ import annotations

from kedge.builds.lint.lint_recipe import _RULES, lint_recipe

TEXT = b"FROM debian:12 AS Build\nENV a b\nCMD run it\n"


def list_rules(data: bytes, name: str = "Dockerfile") -> set[str]:
    return {finding.rule for finding in lint_recipe(data, name)} & set(_RULES)


def test_rules_dockerfile_are_findings() -> None:
    assert list_rules(TEXT) == {"StageNameCasing", "LegacyKeyValueFormat", "JSONArgsRecommended"}
    finding = next(finding for finding in lint_recipe(TEXT, "D.dockerfile") if finding.rule == "StageNameCasing")
    assert str(finding.place) == "D.dockerfile:1:1"
    assert finding.better == "write the name in lower case"


def test_rules_dockerfile_can_be_skipped() -> None:
    assert list_rules(b"# check=skip=all\n" + TEXT) == set()
    assert list_rules(b"# kedge: ignore=StageNameCasing\n" + TEXT) == {"LegacyKeyValueFormat", "JSONArgsRecommended"}


def test_rules_dockerfile_leave_definition_files_alone() -> None:
    assert list_rules(b"Bootstrap: docker\nFrom: debian:12\n%post\n  true\n", "x.def") == set()
