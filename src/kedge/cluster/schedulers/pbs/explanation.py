# SPDX-License-Identifier: BSD-3-Clause
"""Why a job of PBS waits or how it failed, in sentences with the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.exit_text import explain_exit, explain_node, explain_timeout, explain_used_memory
from kedge.cluster.schedulers.pbs.status import UNMET

_SHORT = re.compile(
    r"Insufficient amount of (?:queue |server )?resource:? ([\w.]+)(?: \(R: (\S+) A: (\S+) T: ([^)]*)\))?"
)
_CODES = {
    -1: "the node could not start it",
    -2: "the node could not start it",
    -3: "the node could not start it; PBS was to try again",
    -7: "it could not be restarted",
    -10: "the node does not know its user",
    -13: "its user's password was refused",
    -21: "PBS' directories on the node are not secure",
    -23: "it had no Kerberos credentials",
    -24: "it used more CPUs than it requested",
    -25: "it used more CPUs than it requested",
    -28: "it used more CPU time than it requested",
    -30: "not all of its nodes could join the job",
}
_WAITS = (
    ("Not enough free nodes available", "it waits for free nodes"),
    (
        "Not enough total nodes available",
        "it requests more nodes than there are, so it never starts; request fewer",
    ),
    (
        "running job limit",
        "its queue has reached its limit of running jobs; it starts when earlier ones end",
    ),
    ("job limit", "a limit of running jobs is reached; it starts when earlier ones end"),
    ("would exceed", "it would exceed a limit of the user, group or queue; it starts when earlier jobs end"),
    (
        "reservation or top job",
        "it could not complete before a reservation or a job with higher priority starts",
    ),
    ("cannot complete", "it could not complete before its queue or the cluster stops; request a shorter --time"),
    (
        "too many failed attempts",
        "PBS failed too often to start it and holds it; ask the site's support, or cancel it",
    ),
    ("Queue not started", "its queue is stopped; it starts when the queue does"),
    ("exclusive node", "it waits for an exclusive node; all are in use"),
    ("Dependency", "it waits for the jobs that it depends on"),
)

_STUCK = ("Can Never Run", "Not enough total nodes available", "too many failed attempts")


def explain_status(status: JobStatus) -> str:
    """Empty when there is nothing to say."""
    if status.state in (State.QUEUED, State.HELD):
        return _explain_waiting(status)
    return _ENDINGS[status.state](status) if status.state in _ENDINGS else ""


def is_stuck(status: JobStatus) -> bool:
    """Whether a job waits for what cannot happen by itself."""
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
        return f"it can never run: {comment.partition(':')[2].strip()}; cancel it and change the request"
    if known:
        return known
    if status.state is State.HELD:
        why = f" ({comment})" if comment else ""
        return f"it is held{why}; release it with 'qrls {status.id}', unless another job or an operator holds it"
    if status.raw.startswith("W"):
        return "its start time is not reached, or its files are being staged in"
    return f"it waits: {comment.removeprefix('Not Running:').strip()}" if comment else ""


def _explain_shortage(match: re.Match[str], *, is_never: bool) -> str:
    resource, wanted, free, total = match.groups()
    figures = f": {wanted} requested, {free} free, {total} in total" if wanted else ""
    if is_never:
        return f"it requests more {resource} than there is{figures}; it can never run: cancel it and request less"
    return f"it waits until enough {resource} is free{figures}"


def _explain_failure(status: JobStatus) -> str:
    code = re.search(r"-\d+$", status.raw)
    if code:
        why = _CODES.get(int(code[0]), "PBS or one of its hooks killed it")
        return f"PBS exit status {code[0]}: {why}" + (f"; its comment: {status.reason}" if status.reason else "")
    return explain_exit(status)


def _explain_cancelled(status: JobStatus) -> str:
    if status.reason == UNMET:
        return UNMET
    return "it was deleted while it ran" if status.started else "it was deleted before it started"


def _explain_unknown(status: JobStatus) -> str:
    if status.raw.startswith("M"):
        return "it was moved to another PBS server; ask 'qstat' there"
    return ""


_ENDINGS: dict[State, Callable[[JobStatus], str]] = {
    State.FAILED: _explain_failure,
    State.CANCELLED: _explain_cancelled,
    State.TIMEOUT: explain_timeout,
    State.OUT_OF_MEMORY: partial(explain_used_memory, detail="resources_used.mem"),
    State.NODE_FAILED: explain_node,
    State.UNKNOWN: _explain_unknown,
}
