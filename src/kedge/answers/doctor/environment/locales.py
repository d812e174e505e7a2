# SPDX-License-Identifier: BSD-3-Clause
"""The locale: programs complain about one that is not installed; one that is not UTF-8 breaks file names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kedge.answers.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.container.payload import has_locale, has_plain_utf8
from kedge.system.views import DirectoryView

if TYPE_CHECKING:
    from kedge.system.views import View

_FOLDER = "/usr/lib/locale"
_DOCS = "kedge help doctor locale"
_PLAIN = ("C", "POSIX")


def check_locale(surroundings: Surroundings) -> list[Finding]:
    """Compare LANG and the LC_ variables with the installed locales."""
    return [judge_locale(surroundings.environ, DirectoryView(surroundings.root))]


def judge_locale(environ: Mapping[str, str], view: View) -> Finding:
    """Report a locale that is not installed or not UTF-8."""
    wanted = {name: value for name, value in environ.items() if (name == "LANG" or name.startswith("LC_")) and value}
    there = view.names(_FOLDER)
    missing = {name: value for name, value in wanted.items() if not _exists(value, view, there)}
    if missing:
        shown = ", ".join(f"{name}={value}" for name, value in sorted(missing.items()))
        return Finding(
            "locale",
            WARNING,
            f"locale not installed on this host: {shown}",
            why="programs warn ('cannot change locale', 'Setting locale failed') or stop; usually ssh passed it "
            "on from "
            "your own computer. In containers kedge uses C.UTF-8 instead",
            fix="add to ~/.bashrc: export LC_ALL=C.UTF-8 LANG=C.UTF-8",
            docs=_DOCS,
        )
    value = wanted.get("LC_ALL") or wanted.get("LC_CTYPE") or wanted.get("LANG") or ""
    if value.partition("@")[0].lower().replace("-", "").endswith("utf8"):
        return Finding("locale", OK, value)
    if not value or value in _PLAIN:
        return Finding("locale", OK, f"{value or 'not set'} (Python uses UTF-8)")
    return Finding(
        "locale",
        NOTE,
        f"{value} is not UTF-8",
        why="file names and output with non-ASCII characters are garbled, also in containers",
        fix=f"export LANG={value.partition('.')[0]}.UTF-8, if 'locale -a' lists it; else export LANG=C.UTF-8",
        docs=_DOCS,
    )


def _exists(value: str, view: View, there: list[str]) -> bool:
    if value in _PLAIN or any(name.startswith("ld-musl-") for name in view.names("/lib")):
        return True
    if value in ("C.UTF-8", "C.utf8"):
        return has_plain_utf8(view, there)
    return has_locale(view, value, there)
