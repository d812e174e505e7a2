# SPDX-License-Identifier: BSD-3-Clause
"""The backend for Slurm. Each verb loads what it needs of it only, which its start pays for."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.cluster.job import Job
from kedge.cluster.job_state import JobStatus
from kedge.cluster.schedulers.backend import Backend, Query, ScriptContext
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.site import Site


class _Slurm:
    name = FACTS.name

    def render(self, job: Job, site: Site, place: ScriptContext) -> str:
        from kedge.cluster.schedulers.slurm.write_script import render

        return render(job, site, place)

    def submit_argv(self, script: str, job: Job, site: Site) -> list[str]:
        from kedge.cluster.schedulers.slurm.write_script import submit_argv

        return submit_argv(script, job, site)

    def parse_submit(self, output: str) -> str:
        from kedge.cluster.schedulers.slurm.write_script import parse_submit

        return parse_submit(output)

    def interactive_argv(self, job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
        from kedge.cluster.schedulers.slurm.interactive import interactive_argv

        return interactive_argv(job, site, command, has_terminal=has_terminal)

    def list_query(self, user: str) -> Query:
        from kedge.cluster.schedulers.slurm.listing import list_query

        return list_query(user)

    def parse_list(self, output: str) -> list[JobStatus]:
        from kedge.cluster.schedulers.slurm.listing import parse_list

        return parse_list(output)

    def detail_query(self, id: str) -> Query:
        from kedge.cluster.schedulers.slurm.detail import detail_query

        return detail_query(id)

    def parse_detail(self, output: str) -> list[JobStatus]:
        from kedge.cluster.schedulers.slurm.detail import parse_detail

        return parse_detail(output)

    def history_query(self, ids: Sequence[str], since: float) -> Query:
        from kedge.cluster.schedulers.slurm.accounts import history_query

        return history_query(ids, since)

    def parse_history(self, output: str) -> list[JobStatus]:
        from kedge.cluster.schedulers.slurm.accounts import parse_history

        return parse_history(output)

    def cancel_argv(self, ids: Sequence[str], signal: str = "") -> list[str]:
        # a signal is for the script's own children too, not only for what srun started
        return ["scancel", *([f"--signal={signal}", "--full"] if signal else []), *ids]

    def explain(self, status: JobStatus) -> str:
        from kedge.cluster.schedulers.slurm.endings import explain

        return explain(status)

    def is_stuck(self, status: JobStatus) -> bool:
        from kedge.cluster.schedulers.slurm.reasons import is_stuck

        return is_stuck(status)


BACKEND: Backend = _Slurm()
