# SPDX-License-Identifier: BSD-3-Clause
"""What every finding of the doctor that is not well must have."""

from __future__ import annotations

from kedge.answers.doctor.surroundings import Finding


def require_whole(finding: Finding, level: str = "") -> Finding:
    """It says why it matters, what helps, and where to read on; and is of that level, where one is given."""
    assert not level or finding.level == level
    assert finding.why
    assert finding.fix
    assert finding.docs.startswith("kedge help doctor ")
    return finding
