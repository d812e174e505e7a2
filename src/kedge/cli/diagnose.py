# SPDX-License-Identifier: BSD-3-Clause
"""`kedge diagnose`: why a job or a program failed, from what it wrote."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.console import wrap_hanging
from kedge.cli.options import add_settings
from kedge.cli.progress import leave_plain
from kedge.cli.redaction import escape_line, redact
from kedge.compat.failures.catalogue import CAUSE, CERTAIN, CONSEQUENCE, GENERAL, NOTE
from kedge.errors import FailureFound, FileProblem, JobNotFound, KedgeError

if TYPE_CHECKING:
    from kedge.answers.failed_logs import LogDiagnosis
    from kedge.cli.console import Console
    from kedge.cli.doctor import Paint
    from kedge.compat.failures.catalogue import Clue

_STANDARD_INPUT = "-"
_WIDEST = 100  # columns: longer lines are hard to read


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "logs",
        metavar="LOG|JOB",
        nargs="*",
        default=["last"],
        help="log file, '-' for standard input, or a job: its id, ID_INDEX, its name, 'last' (default: last)",
    )
    parser.add_argument("--all", action="store_true", help="show every message that kedge recognises")
    add_settings(parser, "site", "job_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Search the logs and explain them; 85 where a known failure was found."""
    from kedge.answers.failed_logs import join_diagnoses
    from kedge.cli.status import warn_of_site_failures

    states: list[dict[str, object]] = []
    parts = [_diagnose(word, states, console) for word in arguments.logs]
    diagnosis = join_diagnoses([part for part in parts if part is not None])
    if console.json:
        document = {"found": diagnosis.has_failure, "jobs": states, **_clean(diagnosis)}
        console.print_json(document)
    else:
        _show(diagnosis, states, arguments, console)
    warn_of_site_failures(console)
    return FailureFound.exit_code if diagnosis.has_failure else 0


def _diagnose(word: str, states: list[dict[str, object]], console: Console) -> LogDiagnosis | None:
    from kedge.answers.failed_logs import diagnose_files, diagnose_stream

    if word == _STANDARD_INPUT:
        return diagnose_stream(sys.stdin.buffer, "standard input")
    if Path(word).exists():
        return diagnose_files([Path(word)])
    return _diagnose_job(word, states, console)


def _diagnose_job(word: str, states: list[dict[str, object]], console: Console) -> LogDiagnosis:
    from kedge.answers.failed_logs import diagnose_files, list_job_files
    from kedge.cli.status import describe_state
    from kedge.jobs.find_job import locate_job
    from kedge.jobs.status import read_status

    try:
        cluster, job = locate_job(console.settings, console.environ, word)
    except JobNotFound as problem:
        raise _refuse(word, problem) from problem
    statuses = read_status(cluster, job)
    first = next((status for status in statuses if status.outcome != "completed"), statuses[0])
    states.append({
        "job": job.name,
        "state": describe_state(first),
        "why": cluster.backend.explain(first) or first.reason,
        "tasks": len(statuses),
    })  # fmt: skip
    if job.record is None:
        raise JobNotFound(
            f"job {job.id} was not submitted with kedge, so kedge cannot locate its output",
            hint="name its log: kedge diagnose FILE",
        )
    return diagnose_files(list_job_files(job.record, statuses))


def _refuse(word: str, problem: KedgeError) -> KedgeError:
    if word == "last":
        return JobNotFound("kedge has submitted no job yet", hint="name a log: kedge diagnose FILE")
    if "/" in word or "." in word:
        return FileProblem(
            f"there is no file {word}",
            hint="check the spelling; relative names are looked up from the current directory",
        )
    return JobNotFound(
        f"there is neither a file nor a job '{word}'", hint=problem.hint or "'kedge jobs --all' lists your jobs"
    )


def _clean(diagnosis: LogDiagnosis) -> dict[str, object]:
    """What goes out, through the rules for secrets."""
    from kedge.cli.redaction import redact

    document = diagnosis.as_dict()
    document["last_lines"] = [redact(line) for line in diagnosis.last_lines]
    document["clues"] = [
        {**clue.as_dict(), "line": redact(clue.line), "cause": redact(clue.cause)} for clue in diagnosis.clues
    ]
    return document


def _show(
    diagnosis: LogDiagnosis, states: list[dict[str, object]], arguments: argparse.Namespace, console: Console
) -> None:

    width = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    for line in render_diagnosis(diagnosis, states, everything=arguments.all, width=width, paint=console.paint):
        console.print(line)


# A diagnosis of logs as lines for a terminal: the likeliest cause, its line and remedy; the rest only if asked.

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
        yield from (f"    {_clean_line(line)}" for line in diagnosis.last_lines)


def _render_clue(clue: Clue, width: int, paint: Paint) -> Iterator[str]:
    sure = "" if clue.sure == CERTAIN else f" ({clue.sure})"
    begin = f"{_WORDS[clue.level]}{sure}: "
    first, *others = wrap_hanging(begin, _clean_line(clue.cause), width, 2)
    yield first.replace(begin, paint(begin.rstrip(": "), _MEANINGS[clue.level]) + ": ", 1)
    yield from others
    yield from wrap_hanging(f"  {escape_line(clue.place)}: ", _clean_line(clue.line) + _tell_who(clue), width, 4)
    yield from wrap_hanging("  remedy: ", clue.remedy, width)


def _tell_who(clue: Clue) -> str:
    """` [rank 3; 8 ranks, 12 times]`."""
    parts = [f"rank {clue.rank}"] if clue.rank else []
    if clue.ranks > 1:
        parts.append(f"{clue.ranks} ranks")
    if clue.count > max(clue.ranks, 1):
        parts.append(f"{clue.count} times")
    return f" [{', '.join(parts)}]" if parts else ""


def _clean_line(text: str) -> str:
    return escape_line(redact(text))
