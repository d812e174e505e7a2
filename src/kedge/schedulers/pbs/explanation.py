# SPDX-License-Identifier: BSD-3-Clause
"""Why a job of PBS waits or how it failed, in sentences with the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from kedge.model.job_state import JobStatus, State
from kedge.schedulers.exits import explain_exit, explain_node, explain_timeout, explain_used_memory

_SHORT = re.compile(
    r"Insufficient amount of (?:queue |server )?resource:? ([\w.]+)(?: \(R: (\S+) A: (\S+) T: ([^)]*)\))?"
)
_CODES = {
    -1: "it could not be started on the node",
    -2: "it could not be started on the node",
    -3: "it could not be started on the node, and was to be tried again",
    -7: "it could not be restarted",
    -10: "the node does not know its user",
    -13: "the password of its user was refused",
    -21: "the node's own directories are not safe",
    -23: "it had no Kerberos credentials",
    -24: "it used more processors than it asked for",
    -25: "it used more processors than it asked for",
    -28: "it used more processor time than it asked for",
    -30: "not all of its nodes could be joined",
}
_WAITS = (
    ("Not enough free nodes available", "it waits for free nodes"),
    (
        "Not enough total nodes available",
        "there are not as many nodes as it asks for, so it never begins; ask for fewer",
    ),
    (
        "running job limit",
        "it waits because so many jobs may run at once in that queue; earlier ones have to end first",
    ),
    ("job limit", "it waits because there is a limit on jobs at once; earlier ones have to end first"),
    ("would exceed", "it waits because with it a limit of the user, group or queue would be exceeded"),
    (
        "reservation or top job",
        "it waits because it could not end before a reservation or a job of higher rank begins",
    ),
    ("cannot complete", "it could not end before its queue or the cluster stops; a shorter --time may begin earlier"),
    (
        "too many failed attempts",
        "PBS tried to start it too often in vain and holds it; ask the site's support, or cancel it",
    ),
    ("Queue not started", "its queue is stopped at the moment; it begins when the queue does"),
    ("exclusive node", "it waits for a node of its own, and all are in use"),
    ("Dependency", "it waits for the jobs that it depends on"),
)

_STUCK = ("Can Never Run", "Not enough total nodes available", "too many failed attempts")


def explain_status(status: JobStatus) -> str:
    """Empty when there is nothing to say."""
    if status.state in (State.QUEUED, State.HELD):
        return _explain_waiting(status)
    return _ENDINGS[status.state](status) if status.state in _ENDINGS else ""


def is_stuck(status: JobStatus) -> bool:
    """Whether it waits for what cannot happen by itself."""
    is_waiting = status.state in (State.QUEUED, State.HELD)
    return is_waiting and any(words in status.reason for words in _STUCK)


def _explain_waiting(status: JobStatus) -> str:
    comment = status.reason.strip()
    is_never = comment.startswith("Can Never Run")
    short = _SHORT.search(comment)
    if short:
        return _explain_shortage(short, is_never=is_never)
    known = next((sentence for mark, sentence in _WAITS if mark in comment), "")
    if is_never:
        return f"it can never run as it is: {comment.partition(':')[2].strip()}; cancel it and ask for something else"
    if known:
        return known
    if status.state is State.HELD:
        why = f" ({comment})" if comment else ""
        return (
            f"it is held{why}; 'qrls {status.id}' releases it, unless it waits for another job or an operator holds it"
        )
    if status.raw.startswith("W"):
        return "it waits for the time at which it may begin, or for files that are brought"
    return f"it waits: {comment.removeprefix('Not Running:').strip()}" if comment else ""


def _explain_shortage(found: re.Match[str], *, is_never: bool) -> str:
    resource, wanted, free, total = found.groups()
    figures = f": {wanted} wanted, {free} free, {total} in all" if wanted else ""
    if is_never:
        return f"it asks for more {resource} than there is{figures}; it can never run: cancel it and ask for less"
    return f"it waits until enough {resource} is free{figures}"


def _explain_failure(status: JobStatus) -> str:
    code = re.search(r"-\d+$", status.raw)
    if code:
        why = _CODES.get(int(code[0]), "PBS or one of its hooks ended it")
        return f"PBS says {code[0]}: {why}" + (f"; its comment: {status.reason}" if status.reason else "")
    return explain_exit(status)


def _explain_cancelled(status: JobStatus) -> str:
    return "it was deleted while it ran" if status.started else "it was deleted before it began"


def _explain_unknown(status: JobStatus) -> str:
    if status.raw.startswith("M"):
        return "it was moved to another server; 'qstat' there knows it"
    return ""


_ENDINGS: dict[State, Callable[[JobStatus], str]] = {
    State.FAILED: _explain_failure,
    State.CANCELLED: _explain_cancelled,
    State.TIMEOUT: explain_timeout,
    State.OUT_OF_MEMORY: partial(explain_used_memory, detail="resources_used.mem"),
    State.NODE_FAILED: explain_node,
    State.UNKNOWN: _explain_unknown,
}
