# SPDX-License-Identifier: BSD-3-Clause
"""A diagnosis as lines for a terminal: problems first, with their remedies; then a line for each check that passed."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kedge.answers.doctor.finding import FAIL, NOTE, OK, SKIPPED, WARNING
from kedge.cli.progress import leave_plain
from kedge.cli.redaction import escape_controls

if TYPE_CHECKING:
    from kedge.answers.doctor.diagnosis import Diagnosis
    from kedge.answers.doctor.finding import Finding

_HEADINGS = ((FAIL, "Problems"), (WARNING, "Warnings"), (NOTE, "Notes"), (SKIPPED, "Not checked"))
_MEANINGS = {FAIL: "bad", WARNING: "warning", NOTE: "note", SKIPPED: "dim"}
_INDENT = " " * 8

Paint = Callable[[str, str], str]


def render_diagnosis(
    diagnosis: Diagnosis, *, is_verbose: bool, width: int, paint: Paint = leave_plain
) -> Iterator[str]:
    """Yield all lines of doctor's findings; with `is_verbose` what each check took, and where to read about notes."""
    titles = {check.name: check.title for check in diagnosis.checks}
    machine = diagnosis.machine
    yield ", ".join(machine[name] for name in ("host", "system", "kernel") if name in machine) or "this host"
    for level, heading in _HEADINGS:
        found = [each for each in diagnosis.findings if each.level == level]
        if found:
            yield from ("", paint(heading, _MEANINGS[level]))
        for each in found:
            yield from _render_finding(each, is_verbose=is_verbose, width=width)
    yield from _render_groups(diagnosis, titles, paint, is_verbose=is_verbose)
    yield ""
    yield diagnosis.summary


def _render_finding(finding: Finding, *, is_verbose: bool, width: int) -> Iterator[str]:
    yield from _wrap(f"  {finding.check}: ", finding.what, width)
    yield from _wrap(f"{_INDENT}why:  ", finding.why, width)
    yield from _wrap(f"{_INDENT}fix:  ", finding.fix, width)
    if is_verbose or finding.level in (FAIL, WARNING):
        yield from _wrap(f"{_INDENT}docs: ", finding.docs, width)


def _wrap(begin: str, text: str, width: int) -> Sequence[str]:
    """Lines that begin alike; a command is not broken in the middle of a word."""
    if not text:
        return ()
    safe = escape_controls(text).replace("\n", " ")
    following = " " * len(begin) if begin.startswith(_INDENT) else _INDENT
    return textwrap.wrap(
        safe, width, initial_indent=begin, subsequent_indent=following, break_long_words=False, break_on_hyphens=False
    )


def _render_groups(diagnosis: Diagnosis, titles: dict[str, str], paint: Paint, *, is_verbose: bool) -> Iterator[str]:
    groups = {check.name: check.group for check in diagnosis.checks}
    widest = max((len(title) for title in titles.values()), default=0)
    before = ""
    for each in sorted((each for each in diagnosis.findings if each.level == OK), key=lambda one: _rank(one, groups)):
        group = groups.get(each.check, "Image")
        if group != before:
            yield from ("", group)
            before = group
        seconds = f"  [{diagnosis.seconds.get(each.check, 0.0):.2f} s]" if is_verbose else ""
        title = titles.get(each.check, each.check)
        yield f"  {paint('ok', 'good')}  {title.ljust(widest)}  {escape_controls(each.what)}{seconds}".rstrip()


def _rank(finding: Finding, groups: dict[str, str]) -> int:
    from kedge.answers.doctor.diagnosis import GROUPS

    return GROUPS.index(groups.get(finding.check, GROUPS[-1]))
