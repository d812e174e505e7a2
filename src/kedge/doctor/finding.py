# SPDX-License-Identifier: BSD-3-Clause
"""What a check says: what is so, why it matters, how it is mended, and where to read on."""

from __future__ import annotations

from kedge.frozen import frozen

OK, NOTE, WARNING, FAIL, SKIPPED = "ok", "note", "warning", "fail", "skipped"
LEVELS = (OK, NOTE, WARNING, FAIL, SKIPPED)


@frozen
class Finding:
    """One thing found. `what` of an OK finding is the value itself; the other levels say `why` and `fix`, too."""

    check: str  # the check's name: `user-namespaces`
    level: str
    what: str
    why: str = ""
    fix: str = ""
    docs: str = ""  # the command that shows the section: `kedge help doctor user-namespaces`
