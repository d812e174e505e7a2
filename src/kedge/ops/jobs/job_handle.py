# SPDX-License-Identifier: BSD-3-Clause
"""A submitted job as Python programs hold it."""

from __future__ import annotations

from pathlib import Path

from kedge.errors import JobStuck
from kedge.jobs.encoding import decode_job
from kedge.jobs.records import Record
from kedge.model.job import Job
from kedge.model.job_state import JobStatus, State
from kedge.ops.jobs.cluster import Cluster
from kedge.ops.jobs.cancel import cancel_jobs
from kedge.ops.jobs.find_job import FoundJob
from kedge.ops.jobs.status import read_status
from kedge.ops.jobs.logs import find_logs, read_log
from kedge.ops.jobs.wait import explain_stuck, require_success, wait_for


class JobHandle:
    """One job. It stays valid when this program ends: `kedge.job(id)` finds it again."""

    def __init__(self, cluster: Cluster, record: Record) -> None:
        self._cluster = cluster
        self._record = record
        self._job = FoundJob(record.id, record)

    @property
    def id(self) -> str:
        """The scheduler's id."""
        return self._record.id

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._record.name

    @property
    def script(self) -> Path:
        """The script that was submitted."""
        return self._record.script

    @property
    def record(self) -> Record:
        """What was written down about it."""
        return self._record

    @property
    def description(self) -> Job:
        """What was asked for, with what the site filled in."""
        return decode_job(self._record.job)

    def status(self) -> list[JobStatus]:
        """What is known now, of each task; asks the scheduler unless the job is over."""
        return read_status(self._cluster, self._job)

    @property
    def state(self) -> State:
        """The state now; of an array the one that is furthest from a good end."""
        return _summarize([each.state for each in self.status()])

    @property
    def reason(self) -> str:
        """In words, why it waits or failed; empty where there is nothing to say."""
        for status in self.status():
            sentence = self._cluster.backend.explain(status) or status.reason
            if sentence:
                return sentence
        return ""

    def explain_stuck(self) -> JobStuck | None:
        """The error of a job that never begins by itself, such as one that waits for a job that failed; else None."""
        return explain_stuck(self._cluster, self._job, self.status())

    def wait(self, timeout: float | None = None, *, check: bool = False) -> State:
        """Wait until it is over and return its state; with `check` raise JobFailed unless all went well.

        A job that never begins raises JobStuck.
        """
        statuses = wait_for(self._cluster, self._job, timeout=timeout)
        if check:
            require_success(self._job, statuses, self._cluster.backend.explain)
        return _summarize([each.state for each in statuses])

    def logs(self, index: int | None = None, *, errors: bool = False) -> str:
        """What it wrote so far; of an array one task's, or all one after the other."""
        logs = find_logs(self._record, index, errors=errors)
        return b"".join(piece for log in logs for piece in read_log(log)).decode(errors="replace")

    def cancel(self, index: int | None = None) -> None:
        """End it, or one task of an array; nothing happens when it is over."""
        cancel_jobs(self._cluster, [FoundJob(self.id, self._record, index)])

    def __repr__(self) -> str:
        return f"<job {self.id} '{self.name}' on {self._record.site}>"


def _summarize(states: list[State]) -> State:
    """One state for all tasks: what still goes on first, then what went wrong."""
    for group in (State.RUNNING, State.COMPLETING, State.SUSPENDED, State.QUEUED, State.HELD, State.UNKNOWN):
        if group in states:
            return group
    return next((state for state in states if state is not State.DONE), State.DONE)
