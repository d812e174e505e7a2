# SPDX-License-Identifier: BSD-3-Clause
"""The backend for Grid Engine: scripts for `qsub`, and what `qstat`, `qacct` and `qdel` are asked."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial

from kedge.base.frozen import replace
from kedge.cluster.job import Job
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.backend import Backend, Dialect, Query, ScriptContext
from kedge.cluster.schedulers.exit_text import explain_exit, explain_timeout, explain_used_memory
from kedge.cluster.schedulers.gridengine import FACTS
from kedge.cluster.schedulers.gridengine.accounts import parse_accounts
from kedge.cluster.schedulers.gridengine.listing import parse_job_list, read_state
from kedge.cluster.schedulers.gridengine.write_directives import (
    GRAMMAR,
    collect_batch,
    collect_request,
    needs_redirection,
)
from kedge.cluster.schedulers.qsub_directives import choose_account, merge_directives, redirect_output, write_directive
from kedge.cluster.schedulers.script_body import render_body
from kedge.cluster.schedulers.times import read_printed_time, read_seconds
from kedge.cluster.site import Site
from kedge.errors import RequestRefused, SchedulerFailed

DIALECT = Dialect(
    submit_word=FACTS.submit,
    job_id="$JOB_ID",
    array_index=FACTS.job_mark,
    first_node=('read -r first_node _ <"$PE_HOSTFILE"',),
    launcher="mpirun",
    has_array_lists=FACTS.has_array_lists,
    first_index=FACTS.first_index,
    has_dependency_kinds=False,
)
_ID = re.compile(r"^\s*(\d+)(?:\.\d+-\d+:\d+)?\s*$|^Your job(?:-array)? (\d+)[. ]", re.MULTILINE)
# Grid Engine reads directives in the whole script, not only above the first command
_DIRECTIVE_IN_TEXT = re.compile(r"^#\$", re.MULTILINE)


class _GridEngine:
    """See `kedge.cluster.schedulers.backend.Backend`."""

    name = FACTS.name

    def make_dialect(self, job: Job, place: ScriptContext) -> Dialect:
        """The dialect of one job's script."""
        if needs_redirection(job, place, DIALECT):
            return replace(DIALECT, opening=redirect_output(job, place))
        return DIALECT

    def render(self, job: Job, site: Site, place: ScriptContext) -> str:
        """The script."""
        dialect = self.make_dialect(job, place)
        lines = [*collect_request(job, site), *collect_batch(job, place, dialect)]
        directives = [write_directive(directive, GRAMMAR) for directive in merge_directives(lines, job, site, GRAMMAR)]
        written = replace(site, setup=_hide(site.setup)), replace(job, setup=_hide(job.setup))
        body = render_body(written[1], written[0], place, dialect)
        # such a line can only be inside a quoted word of the user's, which two quotes do not change
        body = _DIRECTIVE_IN_TEXT.sub("''#$", body)
        return "\n".join(["#!/bin/bash", *directives, "", body])

    def submit_argv(self, script: str, job: Job, site: Site) -> list[str]:
        """`qsub -terse` prints the id alone."""
        return ["qsub", "-terse", *choose_account(job, site, "-P"), script]

    def parse_submit(self, output: str) -> str:
        """`7`, or `7.1-3:1` for an array; a site's own words may stand around it."""
        found = list(_ID.finditer(output))
        if not found:
            raise SchedulerFailed("qsub printed no job id", context={"said": output[-2000:]})
        return found[-1][1] or found[-1][2]

    def interactive_argv(self, job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
        """`qrsh` gives its words to a shell, so they go as one; without `-now n` it fails where nothing is free.

        With `-pty y` and no terminal it ends before the command does, with status 0.
        """
        options = merge_directives([*collect_request(job, site), ("-cwd",)], job, site, GRAMMAR)
        words = [word for each in options for word in each]
        call = ["qrsh", "-now", "n", *choose_account(job, site, "-P"), *words]
        call += ["-pty", "y"] if command and has_terminal else []
        return [*call, shlex.join(command)] if command else call

    def list_query(self, user: str) -> Query:
        """Return the call that lists all jobs that wait or run."""
        return Query(("qstat", "-u", user, "-xml"))

    def parse_list(self, output: str) -> list[JobStatus]:
        """Tasks of an array that wait are one entry."""
        return parse_job_list(output)

    def detail_query(self, id: str) -> Query | None:
        """Why it waits, or why it is in error."""
        return Query(("qstat", "-j", id), may_fail=True)

    def parse_detail(self, output: str) -> list[JobStatus]:
        """Empty when it is over."""
        return parse_job_detail(output)

    def history_query(self, ids: Sequence[str], since: float) -> Query | None:
        """`qacct` takes one id; for several it is asked for all that began since then."""
        if len(ids) == 1:
            return Query(("qacct", "-j", ids[0]), may_fail=True)
        begin = time.strftime("%Y%m%d%H%M", time.localtime(max(since, 0)))
        return Query(("qacct", "-j", "-b", begin), may_fail=True)

    def parse_history(self, output: str) -> list[JobStatus]:
        """The last word about each job or task."""
        return parse_accounts(output)

    def cancel_argv(self, ids: Sequence[str], signal: str = "") -> list[str]:
        """`12_3` is `12.3` here."""
        if signal:
            raise RequestRefused(
                "Grid Engine has no command that sends a signal to a job", hint="leave out --signal to end it"
            )
        return ["qdel", *(id.replace("_", ".") for id in ids)]

    def explain(self, status: JobStatus) -> str:
        """In a sentence."""
        return explain_status(status)

    def is_stuck(self, status: JobStatus) -> bool:
        """`Eqw`: it waits until somebody clears its error."""
        return is_in_error(status)


def _hide(lines: Sequence[str]) -> tuple[str, ...]:
    """Comments of a setup that Grid Engine would take for directives."""
    return tuple(_DIRECTIVE_IN_TEXT.sub(" #$", line) for line in lines)


BACKEND: Backend = _GridEngine()


# `qstat -j ID`: what one job asked for, and why it waits or is in error.

_FIELD = re.compile(r"([A-Za-z_][\w/ -]*?)(?:\s+(\d+))?:\s*(.*)")  # the number is a task's
_INDENT = " " * 20
_STAMP = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d \[[^\]]*\]:\s*")
_TIME_LIMIT = re.compile(r"(?:^|,)h_rt=([\d:]+)")
_SHOWN = (
    "hard resource_list",
    "parallel environment",
    "hold_jid",
    "predecessor_jobs",
    "usage",
    "cwd",
    "execution_time",
)


def parse_job_detail(output: str) -> list[JobStatus]:
    """The job, with all reasons in one text; an empty `raw` means that only the list knows its state."""
    fields = _read_fields(output)
    id = (fields.get("job_number") or [""])[0]
    if not id.isdecimal():
        return []
    reasons = [_STAMP.sub("", each) for each in (*fields.get("error reason", []), *fields.get("scheduling info", []))]
    limit = _TIME_LIMIT.search((fields.get("hard resource_list") or [""])[0])
    shown = [(name, "; ".join(fields[name])) for name in _SHOWN if name in fields]
    state, raw = _find_state(fields)
    return [
        JobStatus(
            id=id,
            state=state,
            raw=raw,
            reason="; ".join(dict.fromkeys(reasons)),
            name=(fields.get("job_name") or [""])[0],
            user=(fields.get("owner") or [""])[0],
            submitted=read_printed_time((fields.get("submission_time") or [""])[0]),
            time_limit=read_seconds(limit[1]) if limit else None,
            details=tuple(shown),
        )
    ]


def _read_fields(output: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in output.splitlines():
        if line.startswith(_INDENT):  # the same field goes on
            current.append(line.strip())
            continue
        field = _FIELD.match(line)
        if field is not None:
            current = found.setdefault(field[1], [])
            current.append(field[3].strip())
    return found


def _find_state(fields: dict[str, list[str]]) -> tuple[State, str]:
    """Newer versions say it; 8.1.9 does not, and an empty word sends whoever asks to the list."""
    letters = (fields.get("job_state") or [""])[0]
    return (read_state(letters), letters) if letters else (State.UNKNOWN, "")


# Why a job of Grid Engine waits or how it failed, in sentences with the remedy.

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
