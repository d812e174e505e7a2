# SPDX-License-Identifier: BSD-3-Clause
"""What jobs used, from qacct. Memory is `maxvmem`: that is what h_vmem limits."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.cluster.job_state import JobUsage
from kedge.cluster.schedulers.backend import Query
from kedge.cluster.schedulers.gridengine.accounts import parse_accounts, read_amount
from kedge.cluster.schedulers.gridengine.backend import BACKEND


def usage_query(ids: Sequence[str], since: float) -> Query:
    """qacct, as for how jobs ended."""
    query = BACKEND.history_query(ids, since)
    assert query is not None  # Grid Engine always keeps accounts
    return query


def parse_usage(output: str) -> dict[str, JobUsage]:
    """By id: `12`, `12_3`."""
    found = {}
    for status in parse_accounts(output):
        told = dict(status.details)
        memory, slots = read_amount(told.get("maxvmem", "")), told.get("slots", "")
        found[status.shown_id] = JobUsage(
            seconds=read_amount(told.get("ru_wallclock", "").rstrip("s")),
            cpus=int(slots) if slots.isdecimal() else None,
            cpu_seconds=read_amount(told.get("cpu", "").rstrip("s")),
            memory=int(memory) if memory else None,
        )
    return found
