# SPDX-License-Identifier: BSD-3-Clause
"""A diagnosis of logs as lines for a terminal: the likeliest cause, its line and remedy; the rest only if asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kedge.cli.console import wrap_hanging
from kedge.cli.progress import leave_plain
from kedge.cli.redaction import escape_line, redact
from kedge.compat.failures.failure import CAUSE, CERTAIN, CONSEQUENCE, GENERAL, NOTE

if TYPE_CHECKING:
    from kedge.answers.failed_logs import LogDiagnosis
    from kedge.cli.doctor_text import Paint
    from kedge.compat.failures.failure import Clue

_WORDS = {CAUSE: "cause", GENERAL: "error", CONSEQUENCE: "follows from another failure", NOTE: "note"}
_MEANINGS = {CAUSE: "bad", GENERAL: "bad", CONSEQUENCE: "warning", NOTE: "note"}


def render_diagnosis(
    diagnosis: LogDiagnosis,
    states: Sequence[Mapping[str, object]],
    *,
    everything: bool,
    width: int,
    paint: Paint = leave_plain,
) -> Iterator[str]:
    """Yield all lines of a diagnosis of failed jobs."""
    for state in states:
        yield f"Job {escape_line(str(state['job']))}: {state['state']}"
        if state["why"]:
            yield from wrap_hanging("  why: ", escape_line(str(state["why"])), width)
    if diagnosis.has_failure and states and all(str(state["state"]).startswith("completed") for state in states):
        yield "The job completed. Its output has this message all the same:"
    clues = [clue for clue in diagnosis.clues if everything or clue.is_failure or not diagnosis.has_failure]
    shown = clues if everything or not diagnosis.has_failure else clues[:1]
    for clue in shown:
        yield from _render_clue(clue, width, paint)
    if len(clues) > len(shown):
        names = ", ".join(clue.name for clue in clues[len(shown) :])
        yield from wrap_hanging("", f"{len(clues) - len(shown)} more with --all: {names}", width)
    if not diagnosis.has_failure:
        where = ", ".join(escape_line(name) for name in diagnosis.files) or "the job's output, which is empty"
        yield from wrap_hanging("", f"kedge knows no failure message in {where}.", width, 2)
    if not diagnosis.has_cause and diagnosis.last_lines:
        yield "  last lines:"
        yield from (f"    {_clean(line)}" for line in diagnosis.last_lines)


def _render_clue(clue: Clue, width: int, paint: Paint) -> Iterator[str]:
    sure = "" if clue.sure == CERTAIN else f" ({clue.sure})"
    begin = f"{_WORDS[clue.level]}{sure}: "
    first, *others = wrap_hanging(begin, _clean(clue.cause), width, 2)
    yield first.replace(begin, paint(begin.rstrip(": "), _MEANINGS[clue.level]) + ": ", 1)
    yield from others
    yield from wrap_hanging(f"  {escape_line(clue.place)}: ", _clean(clue.line) + _tell_who(clue), width, 4)
    yield from wrap_hanging("  remedy: ", clue.remedy, width)


def _tell_who(clue: Clue) -> str:
    """` [rank 3; 8 ranks, 12 times]`."""
    parts = [f"rank {clue.rank}"] if clue.rank else []
    if clue.ranks > 1:
        parts.append(f"{clue.ranks} ranks")
    if clue.count > max(clue.ranks, 1):
        parts.append(f"{clue.count} times")
    return f" [{', '.join(parts)}]" if parts else ""


def _clean(text: str) -> str:
    return escape_line(redact(text))
