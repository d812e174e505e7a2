# SPDX-License-Identifier: BSD-3-Clause
"""All that was found: the findings in the order of their checks, what each check took, and what machine this is."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.doctor.finding import FAIL, SKIPPED, WARNING, Finding
from kedge.doctor.surroundings import Check
from kedge.frozen import NOTHING, frozen
from kedge.model.counting import count_things

GROUPS = ("Containers", "GPU", "Cluster", "Storage", "Network", "Environment", "Image")  # of Check.group


@frozen
class Diagnosis:
    """What `kedge doctor` knows at its end."""

    findings: tuple[Finding, ...]
    checks: tuple[Check, ...] = ()  # those that ran
    seconds: Mapping[str, float] = NOTHING  # by check
    total_seconds: float = 0.0
    machine: Mapping[str, str] = NOTHING  # host, system, kernel, processor, memory, user: in words

    def count(self, level: str) -> int:
        """How many findings are of a level."""
        return sum(finding.level == level for finding in self.findings)

    @property
    def has_failed(self) -> bool:
        """Whether something keeps containers or jobs from working."""
        return bool(self.count(FAIL))

    @property
    def summary(self) -> str:
        """`31 checks, 2 problems, 1 warning, 0.6 s`."""
        names = {each.name for each in self.checks} | {each.check for each in self.findings}
        parts = [count_things(len(names), "check"), count_things(self.count(FAIL), "problem")]
        parts.append(count_things(self.count(WARNING), "warning"))
        if self.count(SKIPPED):
            parts.append(f"{self.count(SKIPPED)} skipped")
        return ", ".join([*parts, f"{self.total_seconds:.1f} s"])

    def as_dict(self) -> dict[str, object]:
        """The diagnosis as `--json` prints it."""
        known = {check.name: check for check in self.checks}
        findings = [
            {
                "check": each.check,
                "title": known[each.check].title if each.check in known else each.check,
                "group": known[each.check].group if each.check in known else GROUPS[-1],
                "level": each.level,
                "what": each.what,
                "why": each.why,
                "fix": each.fix,
                "docs": each.docs,
            }
            for each in self.findings
        ]
        return {
            "failed": self.has_failed,
            "summary": self.summary,
            "machine": dict(self.machine),
            "findings": findings,
            "seconds": {name: round(each, 4) for name, each in self.seconds.items()},
            "total_seconds": round(self.total_seconds, 4),
        }
