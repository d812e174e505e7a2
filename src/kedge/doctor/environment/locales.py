# SPDX-License-Identifier: BSD-3-Clause
"""The locale: one that this system lacks makes programs complain, one that is not UTF-8 breaks names of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kedge.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.posix.views import DirectoryView
from kedge.runtime.environment.leaks import has_locale, has_plain_utf8

if TYPE_CHECKING:
    from kedge.posix.views import View

_FOLDER = "/usr/lib/locale"
_DOCS = "kedge help doctor locale"
_PLAIN = ("C", "POSIX")


def check_locale(surroundings: Surroundings) -> list[Finding]:
    """LANG and the LC_ variables, against the locales of this system."""
    return [judge_locale(surroundings.environ, DirectoryView(surroundings.root))]


def judge_locale(environ: Mapping[str, str], view: View) -> Finding:
    """The value that counts, and whether it exists."""
    wanted = {name: value for name, value in environ.items() if (name == "LANG" or name.startswith("LC_")) and value}
    there = view.names(_FOLDER)
    missing = {name: value for name, value in wanted.items() if not _exists(value, view, there)}
    if missing:
        shown = ", ".join(f"{name}={value}" for name, value in sorted(missing.items()))
        return Finding(
            "locale",
            WARNING,
            f"this system has no such locale: {shown}",
            "programs complain ('cannot change locale', 'Setting locale failed'), and some stop; ssh brought it from "
            "your own computer. In containers kedge puts C.UTF-8 in its place",
            "export LC_ALL=C.UTF-8 LANG=C.UTF-8, in ~/.bashrc",
            _DOCS,
        )
    value = wanted.get("LC_ALL") or wanted.get("LC_CTYPE") or wanted.get("LANG") or ""
    if value.partition("@")[0].lower().replace("-", "").endswith("utf8"):
        return Finding("locale", OK, value)
    if not value or value in _PLAIN:
        return Finding("locale", OK, f"{value or 'none is set'} (Python takes UTF-8 then)")
    return Finding(
        "locale",
        NOTE,
        f"{value} is not UTF-8",
        "names of files and output with letters beyond ASCII come out wrong, in containers, too",
        f"export LANG={value.partition('.')[0]}.UTF-8, if 'locale -a' has it; else LANG=C.UTF-8",
        _DOCS,
    )


def _exists(value: str, view: View, there: list[str]) -> bool:
    if value in _PLAIN or any(name.startswith("ld-musl-") for name in view.names("/lib")):
        return True
    if value in ("C.UTF-8", "C.utf8"):
        return has_plain_utf8(view, there)
    return has_locale(view, value, there)
