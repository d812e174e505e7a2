# SPDX-License-Identifier: BSD-3-Clause
"""The backend for PBS: scripts for `qsub`, and what `qstat` and `qdel` are asked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kedge.cluster.job import Job
from kedge.cluster.job_state import JobStatus
from kedge.cluster.schedulers.backend import Backend, Dialect, Query, ScriptContext
from kedge.cluster.schedulers.pbs import FACTS
from kedge.cluster.schedulers.pbs.explanation import explain_status, is_stuck
from kedge.cluster.schedulers.pbs.status import parse_job_status
from kedge.cluster.schedulers.pbs.write_directives import GRAMMAR, collect_batch, collect_request, is_scheduler_array
from kedge.cluster.schedulers.qsub_directives import choose_account, merge_directives, redirect_output, write_directive
from kedge.cluster.schedulers.script_body import render_body
from kedge.cluster.site import Site
from kedge.errors import SchedulerFailed

_ID = re.compile(r"^\s*(\d+(?:\[\])?(?:\.[\w.-]+)?)\s*$", re.MULTILINE)
_SUBJOB = re.compile(r"(\d+)\[\](.*)_(\d+)")


class _Pbs:
    """See `kedge.cluster.schedulers.backend.Backend`."""

    name = FACTS.name

    def make_dialect(self, job: Job, place: ScriptContext) -> Dialect:
        """The dialect of one job's script."""
        index = "PBS_ARRAY_INDEX"
        if job.array is not None and not is_scheduler_array(job):
            index = f"{{PBS_ARRAY_INDEX:-{job.array.indices[0]}}}"
        return Dialect(
            submit_word=FACTS.submit,
            job_id="$PBS_ARRAY_ID" if is_scheduler_array(job) else "$PBS_JOBID",
            array_index=index,
            first_node=('read -r first_node <"$PBS_NODEFILE"',),
            launcher="mpirun",
            host_file='"$PBS_NODEFILE"',
            has_array_lists=FACTS.has_array_lists,
            node_shell=(FACTS.node_shell, FACTS.node_file),
            signal_carrier=FACTS.signal_carrier,
            opening=redirect_output(job, place),
        )

    def render(self, job: Job, site: Site, place: ScriptContext) -> str:
        """The script."""
        dialect = self.make_dialect(job, place)
        lines = [*collect_request(job, site), *collect_batch(job, place, dialect)]
        directives = [write_directive(directive, GRAMMAR) for directive in merge_directives(lines, job, site, GRAMMAR)]
        return "\n".join(["#!/bin/bash", *directives, "", render_body(job, site, place, dialect)])

    def submit_argv(self, script: str, job: Job, site: Site) -> list[str]:
        """`qsub` prints the id alone."""
        return ["qsub", *choose_account(job, site, "-A"), script]

    def parse_submit(self, output: str) -> str:
        """`1234.pbs1`, or `1234[].pbs1` for an array; a site's own words may stand around it."""
        found = _ID.findall(output)
        if not found:
            raise SchedulerFailed("qsub printed no job id", context={"said": output[-2000:]})
        return str(found[-1])

    def interactive_argv(self, job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
        """PBS starts a login shell and takes no command: what is to run has to be typed there."""
        del command, has_terminal
        options = merge_directives(collect_request(job, site), job, site, GRAMMAR)
        return ["qsub", "-I", *choose_account(job, site, "-A"), *(word for each in options for word in each)]

    def list_query(self, user: str) -> Query:
        """-u works beside -f only with -w, and that since PBS 18."""
        return Query(("qstat", "-f", "-w", "-t", "-u", user))

    def parse_list(self, output: str) -> list[JobStatus]:
        """Tasks of an array that wait are one entry."""
        return parse_job_status(output)

    def detail_query(self, id: str) -> Query | None:
        """Return the call for one job without -x, which fails for all jobs where no history is kept."""
        return Query(("qstat", "-f", "-w", "-t", id), may_fail=True)

    def parse_detail(self, output: str) -> list[JobStatus]:
        """Empty when it is over."""
        return parse_job_status(output)

    def history_query(self, ids: Sequence[str], since: float) -> Query | None:
        """Return the call for past jobs; it fails when one of them is unknown, and prints the others all the same."""
        del since
        return Query(("qstat", "-x", "-f", "-w", "-t", *ids), may_fail=True)

    def parse_history(self, output: str) -> list[JobStatus]:
        """Parse the history; empty where the server keeps none."""
        return parse_job_status(output, is_history=True)

    def cancel_argv(self, ids: Sequence[str], signal: str = "") -> list[str]:
        """`12[].pbs1_3` is `12[3].pbs1` here."""
        names = [_SUBJOB.sub(r"\1[\3]\2", id) for id in ids]
        return ["qsig", "-s", signal, *names] if signal else ["qdel", *names]

    def explain(self, status: JobStatus) -> str:
        """In a sentence."""
        return explain_status(status)

    def is_stuck(self, status: JobStatus) -> bool:
        """The scheduler's comment says so."""
        return is_stuck(status)


BACKEND: Backend = _Pbs()
