# SPDX-License-Identifier: BSD-3-Clause
"""Everything the controller knows of one job: `scontrol --oneliner show job`."""

from __future__ import annotations

import re

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

# A name holds anything; it ends where the only words follow that stand behind every name.
_NAME = re.compile(r" JobName=(.*?) UserId=([^\s(]+)\(\d+\) GroupId=", re.DOTALL)
_FIELD = re.compile(r" ([A-Z][A-Za-z]*(?:[/:][A-Za-z:]+)?)=")
_ABSENT = ("Invalid job id", "not found", "No jobs in the system")
_DETAILS = (
    ("Dependency", "waits for"), ("Account", "account"), ("QOS", "qos"), ("NumNodes", "nodes"), ("NumTasks", "tasks"),
    ("CPUs/Task", "CPUs per task"), ("TresPerNode", "per node"), ("ReqTRES", "asked for"), ("TRES", "resources"),
    ("AllocTRES", "got"), ("Features", "constraint"), ("Reservation", "reservation"), ("Restarts", "restarts"),
    ("WorkDir", "folder"), ("StdOut", "output"), ("StdErr", "error output"), ("Command", "script"),
)  # fmt: skip


def detail_query(id: str) -> Query:
    """Return the call for a job; it prints a line for each task of an array that began, and one for the others."""
    return Query(
        ("scontrol", "--oneliner", "show", "job", id),
        may_fail=True,
        environment=(TIME_ENVIRONMENT, ("SLURM_BITSTR_LEN", "0")),
    )


def parse_detail(output: str) -> list[JobStatus]:
    """Parse a job's detail; empty when the controller has forgotten the job."""
    # a name over several lines makes several of one record
    records = re.split(r"^(?=JobId=\d+ )", output, flags=re.MULTILINE)
    statuses = [_make_status(_read_fields(record)) for record in records if record.startswith("JobId=")]
    said = output.strip()
    if not statuses and said and not any(word in said for word in _ABSENT):
        raise SchedulerFailed("scontrol did not print a job", context={"said": said[:500]})
    return [each for each in statuses if each is not None]


def _read_fields(record: str) -> dict[str, str]:
    """The first value of each field: later ones are in texts that users write."""
    name = _NAME.search(record)
    fields = {"JobName": name[1], "User": name[2]} if name else {}
    rest = f" {record[: name.start()]}{record[name.end(1) :]}" if name else f" {record}"
    marks = list(_FIELD.finditer(rest))
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        value = rest[mark.end() : after.start() if after else len(rest)].strip()
        fields.setdefault(mark[1], value)
    return fields


def _make_status(fields: dict[str, str]) -> JobStatus | None:
    id = fields.get("ArrayJobId") or fields.get("JobId", "")
    raw = fields.get("JobState", "")
    if not (id.isdecimal() and id.isascii()) or not raw:
        return None  # cut off
    reason = read_text(fields.get("Reason", ""))
    state = read_state(raw, reason)
    index, pending = split_indices(fields.get("ArrayTaskId", ""))
    code, signal = read_exit(fields.get("ExitCode", ""))
    waits = state in (State.QUEUED, State.HELD)
    start = fields.get("StartTime", "")
    details = [(title, read_text(fields.get(key, ""))) for key, title in _DETAILS]
    if waits and read_time(start) is not None:
        details.insert(0, ("expected start", start))
    return JobStatus(
        id=id, state=state, raw=raw, index=index, pending_indices=pending, reason=reason,
        name=fields.get("JobName", ""),
        user=fields.get("User", ""),
        queue=read_text(fields.get("Partition", "")),
        nodes=read_text(fields.get("NodeList", "")),
        exit_code=code if state.is_final else None,
        signal=signal if state.is_final else None,
        submitted=read_time(fields.get("SubmitTime", "")),
        started=None if waits else read_time(start),
        ended=read_time(fields.get("EndTime", "")) if state.is_final else None,
        time_limit=read_duration(fields.get("TimeLimit", "")),
        details=tuple((title, value) for title, value in details if value not in ("", "0")),
    )  # fmt: skip
