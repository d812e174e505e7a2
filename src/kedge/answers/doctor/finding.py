# SPDX-License-Identifier: BSD-3-Clause
"""The result of a check: what it is, why it matters, how to fix it, and where to read more."""

from __future__ import annotations

from kedge.base.frozen import frozen

OK, NOTE, WARNING, FAIL, SKIPPED = "ok", "note", "warning", "fail", "skipped"
LEVELS = (OK, NOTE, WARNING, FAIL, SKIPPED)


@frozen
class Finding:
    """One result of a check. An OK finding has its value in `what`; the other levels also have `why` and `fix`."""

    check: str  # the check's name: `user-namespaces`
    level: str
    what: str
    why: str = ""
    fix: str = ""
    docs: str = ""  # the command that shows the section: `kedge help doctor user-namespaces`
