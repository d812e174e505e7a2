# SPDX-License-Identifier: BSD-3-Clause
"""Questions to `apptainer` that a text answers: where things are, and which plugins there are."""

from __future__ import annotations

import os
import sys

from kedge.base.release import VERSION
from kedge.errors import UsageError

_ANSWERS = ("buildcfg", "plugin")


def answer(program: str, verb: str, words: list[str]) -> str:
    """Return what another program's command prints; raises an error where kedge has no answer."""
    if verb == "buildcfg":
        return _show_build(program, words)
    if words[:1] == ["list"]:
        return "There are no plugins installed.\n"
    raise UsageError(f"kedge does not support '{program} plugin'", hint="kedge has no plugins")


def _show_build(program: str, words: list[str]) -> str:
    known = _list_build()
    if not words:
        return "".join(f"{name}={value}\n" for name, value in known.items())
    if words[0] not in known:
        raise UsageError(f'no variable named "{words[0]}"', hint=f"to list them: {program} buildcfg")
    return f"{known[words[0]]}\n"


def _list_build() -> dict[str, str]:
    """What scripts ask Apptainer's build for, as it is with kedge; what kedge has no such place for is left out."""
    return {
        "PACKAGE_NAME": "kedge",
        "PACKAGE_VERSION": VERSION,
        "PREFIX": sys.prefix,
        "BINDIR": os.path.dirname(sys.argv[0]) or f"{sys.prefix}/bin",  # noqa: PTH120 - a start has no pathlib
        "SYSCONFDIR": "/etc",
        "APPTAINER_CONFDIR": "/etc/apptainer",
        "SESSIONDIR": f"/var/tmp/kedge-{os.getuid()}/session",
        "APPTAINER_SUID_INSTALL": "0",
    }
