# SPDX-License-Identifier: BSD-3-Clause
"""JobHandle: a submitted job, for Python programs."""

from __future__ import annotations

from pathlib import Path

from kedge.cluster.job import Job
from kedge.cluster.job_state import JobStatus, State
from kedge.errors import JobStuck
from kedge.jobs.cancel import cancel_jobs
from kedge.jobs.cluster import Cluster
from kedge.jobs.encoding import decode_job
from kedge.jobs.find_job import FoundJob
from kedge.jobs.logs import find_logs, read_log
from kedge.jobs.records import Record
from kedge.jobs.status import read_status
from kedge.jobs.wait import explain_stuck, require_success, wait_for


class JobHandle:
    """A submitted job. It outlives this program: `kedge.job(id)` finds it again."""

    def __init__(self, cluster: Cluster, record: Record) -> None:
        self._cluster = cluster
        self._record = record
        self._job = FoundJob(record.id, record)

    @property
    def id(self) -> str:
        """The job id of the scheduler."""
        return self._record.id

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._record.name

    @property
    def script(self) -> Path:
        """The path of the submitted script."""
        return self._record.script

    @property
    def record(self) -> Record:
        """The record that kedge keeps of the job."""
        return self._record

    @property
    def description(self) -> Job:
        """The job as it was requested, with the defaults of the site."""
        return decode_job(self._record.job)

    def status(self) -> list[JobStatus]:
        """The status of each task; asks the scheduler unless the job has ended."""
        return read_status(self._cluster, self._job)

    @property
    def state(self) -> State:
        """The current state; of an array, what still runs or is pending first, then what failed."""
        return _summarize([task.state for task in self.status()])

    @property
    def reason(self) -> str:
        """Why the job is pending or failed, as a sentence; empty if there is no reason."""
        for status in self.status():
            sentence = self._cluster.backend.explain(status) or status.reason
            if sentence:
                return sentence
        return ""

    def explain_stuck(self) -> JobStuck | None:
        """The error of a job that will never start, such as one that depends on a failed job; else None."""
        return explain_stuck(self._cluster, self._job, self.status())

    def wait(self, timeout: float | None = None, *, check: bool = False) -> State:
        """Wait until the job has ended and return its state; with `check` raise JobFailed unless it completed.

        Raises JobStuck if the job will never start.
        """
        statuses = wait_for(self._cluster, self._job, timeout=timeout)
        if check:
            require_success(self._job, statuses, self._cluster.backend.explain)
        return _summarize([task.state for task in statuses])

    def logs(self, index: int | None = None, *, errors: bool = False) -> str:
        """The output so far; of an array that of task `index`, or of all tasks in turn."""
        logs = find_logs(self._record, index, errors=errors)
        return b"".join(piece for log in logs for piece in read_log(log)).decode(errors="replace")

    def cancel(self, index: int | None = None) -> None:
        """Cancel the job, or one task of an array; does nothing if it has ended."""
        cancel_jobs(self._cluster, [FoundJob(self.id, self._record, index)])

    def __repr__(self) -> str:
        return f"<job {self.id} '{self.name}' on {self._record.site}>"


def _summarize(states: list[State]) -> State:
    """Return one state for all tasks: what has not ended first, then what did not complete."""
    for group in (State.RUNNING, State.COMPLETING, State.SUSPENDED, State.QUEUED, State.HELD, State.UNKNOWN):
        if group in states:
            return group
    return next((state for state in states if state is not State.DONE), State.DONE)
