# SPDX-License-Identifier: BSD-3-Clause
"""BuildKit's checks are findings of `kedge recipe lint`, unless the file says to skip them."""

from __future__ import annotations

from kedge.builds.lint.lint_recipe import lint_recipe
from kedge.builds.lint.rules_dockerfile import _RULES

TEXT = b"FROM debian:12 AS Build\nENV a b\nCMD run it\n"


def list_rules(data: bytes, name: str = "Dockerfile") -> set[str]:
    return {finding.rule for finding in lint_recipe(data, name)} & set(_RULES)


def test_rules_dockerfile_are_findings_that_can_be_skipped() -> None:
    assert list_rules(TEXT) == {"StageNameCasing", "LegacyKeyValueFormat", "JSONArgsRecommended"}
    finding = next(finding for finding in lint_recipe(TEXT, "D.dockerfile") if finding.rule == "StageNameCasing")
    assert (str(finding.place), finding.better) == ("D.dockerfile:1:1", "write the name in lower case")
    assert list_rules(b"# check=skip=all\n" + TEXT) == set()
    assert list_rules(b"# kedge: ignore=StageNameCasing\n" + TEXT) == {"LegacyKeyValueFormat", "JSONArgsRecommended"}
    assert list_rules(b"Bootstrap: docker\nFrom: debian:12\n%post\n  true\n", "x.def") == set()
