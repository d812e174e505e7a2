# SPDX-License-Identifier: BSD-3-Clause
"""docs/tutorials.md, written by the runs: a table for each tutorial with every command and what came of it.

A run compares the part of its tutorial with the page; with WRITE_TUTORIALS_PAGE=1 it writes it.
"""

from __future__ import annotations

import os
import re
from collections import Counter

from tests.requirements import REPOSITORY
from tests.tutorials.documents import Kind
from tests.tutorials.lessons import Lesson, Step, Verdict

PAGE = REPOSITORY / "docs/tutorials.md"
_LONGEST = 110


def check_page(lesson: Lesson, steps: list[Step], *, may_write: bool = True) -> None:
    """Compare the part of a tutorial with what its run gave, or write it; who has not run the commands may not."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- begin {lesson.document} -->\n", f"<!-- end {lesson.document} -->\n"
    before, _, rest = text.partition(begin)
    written, _, after = rest.partition(end)
    made = render(lesson, steps)
    if may_write and os.environ.get("WRITE_TUTORIALS_PAGE"):
        PAGE.write_text(f"{before}{begin}{made}{end}{after}", encoding="utf-8")
    else:
        assert written == made, "docs/tutorials.md is not what this run gave: run the test with WRITE_TUTORIALS_PAGE=1"


def render(lesson: Lesson, steps: list[Step]) -> str:
    """The part of one tutorial."""
    verdicts = [_judge(step) for step in steps]
    counts = Counter(verdicts)
    told = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
    rows = [_render_row(step, verdict) for step, verdict in zip(steps, verdicts, strict=True)]
    lines = [f"## {lesson.title}", "", lesson.about, "", f"{len(steps)} entries: {told}.", ""]
    return "\n".join([*lines, "| line | command | result |", "|---|---|---|", *rows, "", ""])


def _judge(step: Step) -> Verdict:
    is_text = step.found.kind in (Kind.NAME, Kind.OUTPUT)
    return Verdict.TEXT if is_text else step.expect.verdict


def _render_row(step: Step, verdict: Verdict) -> str:
    kinds = {Kind.SCRIPT: "batch script", Kind.OUTPUT: "output", Kind.NAME: "name of an image"}
    shown = f"`{_shorten(step.text)}`" if step.found.kind not in (Kind.SCRIPT, Kind.OUTPUT) else ""
    if step.found.kind is Kind.FILE:
        shown = f"{step.found.text}: {shown}" if step.text != step.found.text else f"file {shown}"
    words = " ".join(part for part in (kinds.get(step.found.kind, ""), shown) if part)
    reason = step.expect.cannot or step.expect.note
    result = f"{verdict.value}: {reason}" if reason else verdict.value
    return f"| {step.found.line} | {words} | {result} |"


def _shorten(text: str) -> str:
    text = re.sub(r"\s+", " ", text.partition("    #")[0].partition("   #")[0]).replace("|", "\\|")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()} …"
