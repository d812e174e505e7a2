# SPDX-License-Identifier: BSD-3-Clause
"""What jobs used, from the server's history: qstat -x -f."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kedge.cluster.job_state import JobUsage
from kedge.cluster.schedulers.backend import Query
from kedge.cluster.schedulers.pbs.status import parse_job_status, read_size
from kedge.cluster.schedulers.quantities import read_seconds


def usage_query(ids: Sequence[str], since: float) -> Query:
    """qstat, for these jobs."""
    del since
    return Query(("qstat", "-x", "-f", "-w", "-t", *ids), may_fail=True)


def parse_usage(output: str) -> dict[str, JobUsage]:
    """By id: `12.server`, `12[].server_3`."""
    found = {}
    for status in parse_job_status(output, is_history=True):
        told = dict(status.details)
        select = told.get("Resource_List.select", "")
        found[status.shown_id] = JobUsage(
            seconds=read_seconds(told.get("resources_used.walltime", "")),
            cpus=_count(select, "ncpus"),
            cpu_seconds=read_seconds(told.get("resources_used.cput", "")),
            memory=read_size(told.get("resources_used.mem", "")),
            gpus=_count(select, "ngpus"),
        )
    return found


def _count(select: str, name: str) -> int | None:
    """`2:ncpus=4:ngpus=1+ncpus=2` has 10 CPUs and 2 GPUs: a chunk without a number is one."""
    total = 0
    for chunk in select.split("+"):
        number = chunk.partition(":")[0]
        each = re.search(rf"(?:^|:){name}=(\d{{1,9}})(?::|$)", chunk)
        total += int(each[1]) * (int(number) if number.isdecimal() and len(number) < 9 else 1) if each else 0
    return total or None
