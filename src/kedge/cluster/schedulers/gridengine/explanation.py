# SPDX-License-Identifier: BSD-3-Clause
"""Why a job of Grid Engine waits or how it failed, in sentences with the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.exit_text import explain_exit, explain_timeout, explain_used_memory

_OFFERS = re.compile(
    r'\(-l ([^)]*)\) cannot run at host "([^"]*)" because it offers only h[cl]:([\w.]+)=(\d+(?:\.\d+)?)'
)
_FULL = re.compile(r'queue instance "[^"]*" dropped because it is (full|overloaded|temporarily not available)')
_ENVIRONMENT = re.compile(r'cannot run in PE "([^"]*)" because it only offers (-?\d+) slots')
_UNREQUESTABLE = re.compile(r'cannot run in queue "([^"]*)" because')
# the latter where a directory on the way is closed to the user, and with what the node knows of the user behind it
_NO_OUTPUT = re.compile(
    r'can\'t (?:open output file "([^"]*)"|stat\(\) "([^"]*)" as std(?:out|err)_path): ([^;]*?)(?: KRB5CCNAME=|;|$)'
)
_NO_FOLDER = re.compile(r"can't chdir to ([^:;]*): ([^;]*)")


def explain_status(status: JobStatus) -> str:
    """Empty when there is nothing to say."""
    if is_in_error(status):
        return _explain_error(status)
    if status.state in (State.QUEUED, State.HELD):
        return _explain_waiting(status)
    return _ENDINGS[status.state](status) if status.state in _ENDINGS else ""


def is_in_error(status: JobStatus) -> bool:
    """Whether Grid Engine gave up to start it."""
    return "E" in status.raw and status.state is State.HELD


def _explain_error(status: JobStatus) -> str:
    output, folder = _NO_OUTPUT.search(status.reason), _NO_FOLDER.search(status.reason)
    if output:
        why = f"the node could not open its output file {output[1] or output[2]} ({output[3]})"
    elif folder:
        why = f"the node could not enter its directory {folder[1]} ({folder[2].strip()})"
    else:
        why = status.reason.removesuffix("; Job is in error state") or "'qstat -j' says why"
    return (
        f"Grid Engine could not start it and put it into an error state: {why}; fix that and retry with 'qmod -cj"
        f" {status.id}', or cancel it"
    )


def _explain_waiting(status: JobStatus) -> str:
    reason = status.reason
    offers = _OFFERS.findall(reason)
    if offers:
        return _explain_offers(offers)
    environment = _ENVIRONMENT.search(reason)
    if environment:
        return (
            f"the parallel environment {environment[1]} has {environment[2]} free slots; it waits for more. If"
            f" 'qconf -sp {environment[1]}' and the queues have fewer in total, it never starts: request fewer CPUs"
        )
    if "job dependencies" in reason:
        return "it waits for the jobs that it depends on"
    if status.state is State.HELD:
        return f"it is held; release it with 'qrls {status.id}', unless another job or an operator holds it"
    if "not yet reached" in reason or "execution time" in reason:
        return "its start time is not reached"
    if "max_aj_instances" in reason:
        return "its array runs as many tasks at once as it allows"
    if "turned off" in reason:
        return "it waits in the queue; this site does not publish the reason"
    full = _FULL.search(reason)
    if full:
        return f"it waits for a free slot: the queues it may use are {full[1]}"
    if _UNREQUESTABLE.search(reason):
        return f"no queue accepts it: {reason.split(';')[0]}"
    return f"it waits: {reason.split(';')[0]}" if reason else ""


def _explain_offers(offers: list[tuple[str, str, str, str]]) -> str:
    """The figure is what is free at the moment; the total is unknown."""
    best = max(offers, key=lambda each: float(each[3]))
    wanted, host, resource, left = best
    left = left.rstrip("0").rstrip(".") if "." in left else left
    asked = dict(piece.partition("=")[::2] for piece in wanted.split(",")).get(resource, "more")
    return (
        f"it requests {resource}={asked}, and {host} has {left or '0'} left; it waits for other jobs to end. If no node"
        " has that many in total, it never starts: cancel it and request less"
    )


def _explain_failure(status: JobStatus) -> str:
    if status.reason and status.exit_code is None and status.signal is None:
        return f"Grid Engine could not run it on {status.nodes or 'the node'}: {status.reason}"
    return explain_exit(status)


def _explain_cancelled(status: JobStatus) -> str:
    by = dict(status.details).get("deleted_by")
    if by:
        return f"{by} deleted it"
    return "it was killed (SIGKILL) by 'qdel', or because its node ran out of memory"


def _explain_lost(status: JobStatus) -> str:
    if status.reason == "rescheduling":
        return "it was requeued, and deleted before it started again"
    return ""


_ENDINGS: dict[State, Callable[[JobStatus], str]] = {
    State.FAILED: _explain_failure,
    State.CANCELLED: _explain_cancelled,
    State.TIMEOUT: explain_timeout,
    State.OUT_OF_MEMORY: partial(explain_used_memory, detail="maxvmem"),
    State.LOST: _explain_lost,
}
