# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recipe lint`: all rules over a recipe of either kind.

A rule that is wrong about a line is switched off there: `# kedge: ignore=RULE` on the line before it, or `ignore`
alone for all rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kedge.builds.lint.recipe_view import WARNING, LintFinding, LintRecipe, view_definition, view_dockerfile
from kedge.builds.lint.rules_bases import check_bases
from kedge.builds.lint.rules_definition import check_definition
from kedge.builds.lint.rules_dockerfile import check_dockerfile
from kedge.builds.lint.rules_environment import check_environment
from kedge.builds.lint.rules_packages import check_packages
from kedge.builds.lint.rules_secrets import check_secrets
from kedge.builds.lint.rules_steps import check_steps
from kedge.builds.read_recipe import decode_recipe, find_kind, read_recipe
from kedge.builds.step_values import BuildArguments, ValuesTooLong
from kedge.errors import InvalidRecipe

_IGNORE = re.compile(r"\s*#\s*kedge:\s*ignore(?:\s*=\s*([\w, -]+))?\s*\Z")


def _check_values(recipe: LintRecipe) -> Iterator[LintFinding]:
    """Whether a build refuses what the recipe's own values grow to; other mistakes are the build's to tell."""
    text = recipe.text.encode("utf-8", "surrogateescape")
    try:
        for stage in read_recipe(text, recipe.name, BuildArguments(keeps_undefined=True), recipe.kind).stages:
            stage.plan({})
    except ValuesTooLong as error:
        reason = "the build fails there: a few lines could fill any memory"
        yield LintFinding(error.place, "values-too-long", WARNING, error.problem, reason=reason, better=error.remedy)
    except InvalidRecipe:
        return


_CHECKS: tuple[Callable[[LintRecipe], Iterator[LintFinding]], ...] = (
    check_bases,
    check_packages,
    check_secrets,
    check_steps,
    check_environment,
    check_definition,
    check_dockerfile,
    _check_values,
)


def lint_recipe(data: bytes, name: str, kind: str = "") -> list[LintFinding]:
    """All findings about a recipe, in its order; raises InvalidRecipe for one that cannot be read."""
    text = decode_recipe(data, name)
    view = view_definition if (kind or find_kind(text, name)) == "definition" else view_dockerfile
    recipe = view(text, name)
    if not recipe.stages:
        return []
    ignored = _list_ignored(text)
    findings = [finding for check in _CHECKS for finding in check(recipe)]
    kept = [finding for finding in findings if not _is_ignored(finding, ignored)]
    return sorted(dict.fromkeys(kept), key=lambda finding: (finding.place.line, finding.place.column, finding.rule))


def _list_ignored(text: str) -> dict[int, tuple[str, ...]]:
    """The rules that are switched off, by the lines they are switched off for; none named means all."""
    ignored: dict[int, tuple[str, ...]] = {}
    rules: tuple[str, ...] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        match = _IGNORE.match(line)
        if match is not None:
            rules = tuple(word.strip() for word in (match[1] or "").split(",") if word.strip())
        elif rules is not None:
            ignored[number] = rules
            rules = rules if line.rstrip().endswith("\\") else None
    return ignored


def _is_ignored(finding: LintFinding, ignored: dict[int, tuple[str, ...]]) -> bool:
    rules = ignored.get(finding.place.line)
    return rules is not None and (not rules or finding.rule in rules)
