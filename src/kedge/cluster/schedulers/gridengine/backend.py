# SPDX-License-Identifier: BSD-3-Clause
"""The backend for Grid Engine: scripts for `qsub`, and what `qstat`, `qacct` and `qdel` are asked."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence

from kedge.base.frozen import replace
from kedge.cluster.job import Job
from kedge.cluster.job_state import JobStatus
from kedge.cluster.schedulers.backend import Backend, Dialect, Query, ScriptContext
from kedge.cluster.schedulers.gridengine import FACTS
from kedge.cluster.schedulers.gridengine.accounts import parse_accounts
from kedge.cluster.schedulers.gridengine.detail import parse_job_detail
from kedge.cluster.schedulers.gridengine.explanation import explain_status, is_in_error
from kedge.cluster.schedulers.gridengine.listing import parse_job_list
from kedge.cluster.schedulers.gridengine.write_directives import (
    GRAMMAR,
    collect_batch,
    collect_request,
    needs_redirection,
)
from kedge.cluster.schedulers.qsub_directives import choose_account, merge_directives, redirect_output, write_directive
from kedge.cluster.schedulers.script_body import render_body
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
