# SPDX-License-Identifier: BSD-3-Clause
"""The result of `kedge doctor`: findings in the order of their checks, seconds per check, and the host."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.answers.doctor.surroundings import FAIL, SKIPPED, WARNING, Check, Finding
from kedge.base.counting import count_things
from kedge.base.frozen import NOTHING, frozen

GROUPS = ("Containers", "GPU", "Cluster", "Storage", "Network", "Environment", "Image")  # of Check.group


@frozen
class Diagnosis:
    """The result of all checks."""

    findings: tuple[Finding, ...]
    checks: tuple[Check, ...] = ()  # those that ran
    seconds: Mapping[str, float] = NOTHING  # by check
    total_seconds: float = 0.0
    machine: Mapping[str, str] = NOTHING  # host, system, kernel, CPUs, memory, user: as text
    slowness: float = 1.0  # by which all time limits were multiplied, as this host is slow

    def count(self, level: str) -> int:
        """Count the findings of a level."""
        return sum(finding.level == level for finding in self.findings)

    @property
    def has_failed(self) -> bool:
        """Whether any finding is a problem."""
        return bool(self.count(FAIL))

    @property
    def summary(self) -> str:
        """`31 checks, 2 problems, 1 warning, 0.6 s`."""
        names = {check.name for check in self.checks} | {finding.check for finding in self.findings}
        parts = [count_things(len(names), "check"), count_things(self.count(FAIL), "problem")]
        parts.append(count_things(self.count(WARNING), "warning"))
        if self.count(SKIPPED):
            parts.append(f"{self.count(SKIPPED)} skipped")
        text = ", ".join([*parts, f"{self.total_seconds:.1f} s"])
        if self.slowness > 1:
            text += f" (this host is slow: time limits were multiplied by {self.slowness:.1f})"
        return text

    def as_dict(self) -> dict[str, object]:
        """The diagnosis as `--json` prints it."""
        known = {check.name: check for check in self.checks}
        findings = [
            {
                "check": finding.check,
                "title": known[finding.check].title if finding.check in known else finding.check,
                "group": known[finding.check].group if finding.check in known else GROUPS[-1],
                "level": finding.level,
                "what": finding.what,
                "why": finding.why,
                "fix": finding.fix,
                "docs": finding.docs,
            }
            for finding in self.findings
        ]
        return {
            "failed": self.has_failed,
            "summary": self.summary,
            "machine": dict(self.machine),
            "findings": findings,
            "seconds": {name: round(seconds, 4) for name, seconds in self.seconds.items()},
            "total_seconds": round(self.total_seconds, 4),
        }
