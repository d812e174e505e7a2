# SPDX-License-Identifier: BSD-3-Clause
"""The table of rules, and how a script is checked against all of them."""

from __future__ import annotations

from collections.abc import Callable

from kedge.batchscript import rules_body, rules_form, rules_processes, rules_request, rules_site, rules_slurm
from kedge.batchscript.findings import Case, ScriptFinding, ScriptRule
from kedge.batchscript.read_request import read_request
from kedge.batchscript.script import BatchScript
from kedge.model.secret_text import mask_secrets
from kedge.model.site import Site

RULES: tuple[ScriptRule, ...] = (
    *rules_form.RULES,
    *rules_request.RULES,
    *rules_processes.RULES,
    *rules_slurm.RULES,
    *rules_site.RULES,
    *rules_body.RULES,
)


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
        for rule in RULES
        for each in rule.check(case)
    ]
    return sorted(findings, key=lambda finding: finding.line)
