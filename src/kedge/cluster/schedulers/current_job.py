# SPDX-License-Identifier: BSD-3-Clause
"""The job that this process runs in, from the variables that schedulers set in one: pure."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.frozen import frozen
from kedge.cluster.schedulers.choose import list_facts


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
