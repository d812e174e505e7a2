# SPDX-License-Identifier: BSD-3-Clause
"""The job that this process runs in, from the variables that schedulers set in one: pure."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.frozen import frozen

# scheduler; the variable with the job's id, that with its queue, and one that nobody but the scheduler sets
_VARIABLES = (
    ("slurm", "SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURM_JOB_ID"),
    ("pbs", "PBS_JOBID", "PBS_QUEUE", "PBS_JOBID"),
    ("gridengine", "JOB_ID", "QUEUE", "SGE_TASK_ID"),
)


@frozen
class _CurrentJob:
    """A job as its own environment names it."""

    scheduler: str
    id: str
    queue: str  # empty: the scheduler does not say


def find_current_job(environ: Mapping[str, str]) -> _CurrentJob | None:
    """The job that this is part of; None outside a job."""
    for scheduler, id, queue, mark in _VARIABLES:
        if environ.get(mark) and environ.get(id):
            return _CurrentJob(scheduler, environ[id], environ.get(queue, ""))
    return None
