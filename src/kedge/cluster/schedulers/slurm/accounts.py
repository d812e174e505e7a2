# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that squeue has forgotten, from the accounts: sacct. Where a site keeps none, it fails, and nothing is known."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from kedge.base.frozen import replace
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.backend import Query
from kedge.cluster.schedulers.slurm.listing import split_indices
from kedge.cluster.schedulers.slurm.values import (
    TIME_ENVIRONMENT,
    read_duration,
    read_exit,
    read_state,
    read_text,
    read_time,
)
from kedge.errors import SchedulerFailed

_FIELDS = "JobID,State,ExitCode,User,Partition,NodeList,Submit,Start,End,Timelimit,Elapsed,ReqMem,MaxRSS,JobName"
_SEPARATORS = _FIELDS.count(",")
_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\]))?(?:\+\d+)?(\..+)?")
_IDS_PER_WORD = 5000  # the kernel takes words of 128 KiB at most
_DAY = 86400.0
_ASKED, _USED = "memory asked for", "largest process"  # among the details
# sacct takes 128 away from exit codes that have them: 127 was 255 perhaps, and 9 was 137, which is SIGKILL
_DOUBTFUL = (4, 6, 7, 8, 9, 11, 15, 127)
EITHER_CODE = "exit code"  # likewise: "127 or 255"
_DISABLED = "accounting storage is disabled"


def history_query(ids: Sequence[str], since: float) -> Query:
    """sacct, with the steps of each job: a step that ran out of memory says so, the job around it often just FAILED."""
    lists = [",".join(ids[first : first + _IDS_PER_WORD]) for first in range(0, len(ids), _IDS_PER_WORD)]
    argv = ("sacct", "--noheader", "--parsable2", f"--starttime={name_day(since)}", f"--format={_FIELDS}")
    return Query((*argv, *(f"--jobs={each}" for each in lists)), may_fail=True, environment=(TIME_ENVIRONMENT,))


def name_day(since: float) -> str:
    """The day to ask from: a day more than needed, in any time zone."""
    return time.strftime("%Y-%m-%d", time.gmtime(max(since - _DAY, 0.0)))


def parse_history(output: str) -> list[JobStatus]:
    """Return one entry for each job or task of an array, with what its steps add."""
    statuses: dict[str, JobStatus] = {}
    other = ""
    for line in output.split("\n"):
        fields = line.split("|", _SEPARATORS)
        match = _ID.fullmatch(fields[0]) if len(fields) == _SEPARATORS + 1 else None
        if match is None:
            other = other or line.strip()
            continue
        status = _make_status(match, fields)
        if match[3] is None:
            statuses[status.shown_id] = status
        elif status.shown_id in statuses:
            statuses[status.shown_id] = _add_step(statuses[status.shown_id], status)
    if other and not statuses and _DISABLED not in output:
        raise SchedulerFailed("sacct did not print a list of jobs", context={"said": other[:500]})
    return [_judge(each) for each in statuses.values()]


def _make_status(match: re.Match[str], fields: list[str]) -> JobStatus:
    _, raw, code, user, queue, nodes, submitted, start, end, limit, elapsed, asked, used, name = fields
    state = read_state(raw)
    index, pending = split_indices(match[2] or "")
    exit_code, signal = read_exit(code)
    details = (("ran for", elapsed), (_ASKED, asked), (_USED, used))
    return JobStatus(
        match[1], state, raw, index, pending,
        name=name,
        user=user,
        queue=queue,
        nodes=read_text(nodes),
        exit_code=exit_code if state.is_final else None,
        signal=signal if state.is_final else None,
        submitted=read_time(submitted),
        started=read_time(start),
        ended=read_time(end),
        time_limit=read_duration(limit),
        details=tuple((title, value) for title, value in details if value and value != "0"),
    )  # fmt: skip


def _add_step(job: JobStatus, step: JobStatus) -> JobStatus:
    if step.state is State.OUT_OF_MEMORY and job.state is State.FAILED:
        job = _blame_memory(job)
    if step.signal and not job.signal and job.exit_code == step.signal:
        job = replace(job, exit_code=128 + step.signal)
    used = dict(step.details).get(_USED, "")
    details = dict(job.details)
    if read_size(used) > read_size(details.get(_USED, "")):
        details[_USED] = used
    return replace(job, details=tuple(details.items()))


def _judge(job: JobStatus) -> JobStatus:
    """What the steps together say: killed with more memory than was asked for, and what sacct makes of exit codes."""
    details = dict(job.details)
    asked = read_size(details.get(_ASKED, "").removesuffix("n"))  # 20.11 says per node or per CPU: 4Gn, 4Gc
    was_killed = 9 in (job.signal, job.exit_code) or job.exit_code == 137
    if job.state is State.FAILED and was_killed and asked and read_size(details.get(_USED, "")) > asked:
        return _blame_memory(job)
    code = job.exit_code
    if code in _DOUBTFUL and not job.signal:
        return replace(job, details=((EITHER_CODE, f"{code} or {code + 128}"), *job.details))
    return job


def _blame_memory(job: JobStatus) -> JobStatus:
    return replace(job, state=State.OUT_OF_MEMORY, reason=job.reason or "OutOfMemory")


def read_size(text: str) -> float:
    """Bytes of `500M`; 0 where it is no size."""
    match = re.fullmatch(r"([\d.]{1,20})([KMGTP]?)", text)
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        return 0.0
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2] or " ")
