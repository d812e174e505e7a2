# SPDX-License-Identifier: BSD-3-Clause
"""The job that this process runs in, from the variables that schedulers set in one: pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kedge.base.frozen import frozen
from kedge.cluster.allocation import Allocation, ThisHost
from kedge.cluster.schedulers.choose import find_allocation_reader, list_facts
from kedge.errors import LaunchRefused


@frozen
class _CurrentJob:
    """A job as its own environment names it."""

    scheduler: str
    id: str
    queue: str  # empty: the scheduler does not say


def find_current_job(environ: Mapping[str, str]) -> _CurrentJob | None:
    """The job that this is part of; None outside a job."""
    for facts in list_facts():
        if facts.has_job(environ):
            return _CurrentJob(facts.name, environ[facts.job_id], environ.get(facts.job_queue, ""))
    return None


# The allocation that this process runs in, from the variables and files of its scheduler; pure.
#
# Each scheduler's package has `allocation.py` with a `read_allocation`; outside of a job it is this machine.


def find_allocation(environ: Mapping[str, str], read: Callable[[str], str], host: ThisHost) -> Allocation:
    """The job's nodes, or this machine. `read` gives the text of a file; raises LaunchRefused if they make no sense."""

    def read_list(path: str) -> str:
        try:
            return read(path)
        except OSError as problem:
            raise LaunchRefused(
                f"kedge cannot read the job's list of nodes, {path}: {problem.strerror}",
                hint="run kedge launch on the first node of the job: the file is there only",
            ) from None

    job = find_current_job(environ)
    return find_allocation_reader(job.scheduler if job else "local")(environ, read_list, host)
