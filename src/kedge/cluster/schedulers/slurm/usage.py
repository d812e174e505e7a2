# SPDX-License-Identifier: BSD-3-Clause
"""What jobs used, from sacct: a question of its own, because lists of jobs do not need the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kedge.base.frozen import replace
from kedge.cluster.job_state import JobUsage
from kedge.cluster.schedulers.backend import Query
from kedge.cluster.schedulers.slurm.accounts import name_day, read_size
from kedge.cluster.schedulers.slurm.values import read_duration

_FIELDS = "JobID,AllocCPUS,ElapsedRaw,TotalCPU,MaxRSS,NNodes,NTasks,AllocTRES"
_COUNT = _FIELDS.count(",") + 1
_ID = re.compile(r"(\d+(?:_\d+)?)(?:\+\d+)?(\..+)?")


def usage_query(ids: Sequence[str], since: float) -> Query:
    """sacct, for these jobs and their steps."""
    argv = ("sacct", "--noheader", "--parsable2", f"--starttime={name_day(since)}", f"--format={_FIELDS}")
    return Query((*argv, f"--jobs={','.join(ids[:5000])}"), may_fail=True)


def parse_usage(output: str) -> dict[str, JobUsage]:
    """By id: `12`, `12_3`. Lines that make no sense are passed over."""
    found: dict[str, JobUsage] = {}
    for line in output.splitlines():
        fields = line.split("|")
        match = _ID.fullmatch(fields[0]) if len(fields) == _COUNT else None
        if match is None:
            continue
        if match[2] is None:
            found[match[1]] = _read_job(fields)
        elif match[1] in found:
            used = _read_step_memory(fields)
            known = found[match[1]]
            found[match[1]] = replace(known, memory=max(filter(None, (used, known.memory)), default=None))
    return found


def _read_job(fields: Sequence[str]) -> JobUsage:
    _, cpus, seconds, busy, _, nodes, _, resources = fields
    given = dict(part.split("=", 1) for part in resources.split(",") if "=" in part)
    memory, count = int(read_size(given.get("mem", ""))), int(nodes) if nodes.isdecimal() else 1
    gpus = given.get("gres/gpu", "")
    return JobUsage(
        seconds=float(seconds) if seconds.isdecimal() else None,
        cpus=int(cpus) if cpus.isdecimal() else None,
        cpu_seconds=_read_busy(busy),
        memory_asked=memory // max(count, 1) or None,
        gpus=int(gpus) if gpus.isdecimal() else None,
    )


def _read_step_memory(fields: Sequence[str]) -> int | None:
    """What a step used on one node at most: sacct tells the largest task alone."""
    nodes, tasks = (int(each) if each.isdecimal() else 1 for each in fields[5:7])
    return int(read_size(fields[4])) * -(-tasks // max(nodes, 1)) or None


def _read_busy(text: str) -> float | None:
    """`00:01.234`, `1-02:03:04`; nothing where Slurm does not measure it, which it prints as zero."""
    whole, _, fraction = text.partition(".")
    seconds = read_duration(whole)
    if seconds is None or not (seconds or fraction.strip("0")):
        return None
    return seconds + float(f"0.{fraction}" if fraction.isdecimal() else 0)
