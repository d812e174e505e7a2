# SPDX-License-Identifier: BSD-3-Clause
"""The rules of data/script_rules.csv, and how a script is checked against all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from kedge.base.secret_text import mask_secrets
from kedge.cluster.site import Site
from kedge.compat.tables.columns import TableKind
from kedge.compat.tables.load import read_shipped
from kedge.jobs.scripts import rules_body, rules_form, rules_processes, rules_request, rules_site, rules_slurm
from kedge.jobs.scripts.findings import Case, ScriptFinding, ScriptRule, Severity
from kedge.jobs.scripts.read_request import read_request
from kedge.jobs.scripts.script import BatchScript

_CHECKS = {
    **rules_form.CHECKS,
    **rules_request.CHECKS,
    **rules_processes.CHECKS,
    **rules_slurm.CHECKS,
    **rules_site.CHECKS,
    **rules_body.CHECKS,
}


@functools.cache
def list_rules() -> tuple[ScriptRule, ...]:
    """All rules, in the order of the table."""
    rules: tuple[ScriptRule, ...] = read_shipped(_TABLE).read_all()
    return rules


def _make(cells: Mapping[str, str]) -> ScriptRule:
    name = cells["rule"]
    return ScriptRule(name, Severity(cells["severity"]), cells["title"], cells["remedy"], _CHECKS[name])


_TABLE = TableKind("script-rules", "script_rules.csv", ("rule", "severity", "title", "remedy"), ("rule",), _make)


def know_nothing(_path: str) -> None:
    """For scripts that are checked elsewhere than where they run."""


def check_script(
    script: BatchScript, site: Site | None = None, has_file: Callable[[str], bool | None] = know_nothing
) -> list[ScriptFinding]:
    """Everything the rules find, by line. `has_file` says whether a path is there, and None where it cannot know."""
    request = read_request(script, site)
    queue = rules_site.find_queue(site, request.get("queue"))
    case = Case(script, request, site, queue, has_file)
    findings = [
        ScriptFinding(
            rule.id, rule.severity, each.line, mask_secrets(each.message), mask_secrets(each.remedy or rule.remedy)
        )
        for rule in list_rules()
        for each in rule.check(case)
    ]
    return sorted(findings, key=lambda finding: finding.line)
