# SPDX-License-Identifier: BSD-3-Clause
"""`qstat -f`: attributes of jobs, one to a line. Its JSON is invalid too often to be asked for.

States and exit codes are those of qstat(1B) and of PBS's reference guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.quantities import read_printed_time, read_seconds

_ID = re.compile(r"(\d+)(\[(\d*)\])?(\..*)?")
_HEADER = "Job Id:"
_STATES = {
    "Q": State.QUEUED,
    "W": State.QUEUED,  # for a time, or for files
    "T": State.QUEUED,  # on its way to another server
    "H": State.HELD,
    "R": State.RUNNING,
    "B": State.RUNNING,  # an array of which something has begun
    "E": State.COMPLETING,
    "S": State.SUSPENDED,
    "U": State.SUSPENDED,
}
_OVER = ("F", "X")
_WAITING = (State.QUEUED, State.HELD)
_DELETED = "91"  # substate: it was terminated from outside
UNMET = "a job that it depends on did not end as it should, so PBS deleted it"
_MEMORY_CODES, _TIME_CODE, _NODE_CODES = (-26, -27), -29, (-4, -5, -6, -20)
_SIGNALS = 256
_KILL, _TERMINATE = 9, 15
_SIZE = re.compile(r"(\d{1,20})([kmgtp]?)[bw]?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SHOWN = (
    "resources_used.walltime",
    "resources_used.mem",
    "resources_used.cput",
    "Resource_List.select",
    "array_state_count",
    "estimated.start_time",
    "project",
    "Account_Name",
)


def parse_job_status(output: str, *, is_history: bool = False) -> list[JobStatus]:
    """Every job and task; those of an array that wait are one entry, and an array whose tasks are told is none.

    Of a task that is over and was never run PBS tells its array's fields. Only in the server's history does that mean
    that it was deleted while it waited: a server without one forgets how tasks ended, too, and they are left out.
    """
    if _HEADER not in output:
        return list(_read_table(output))
    told_of = (fields for fields in _split_jobs(output) if is_history or not _is_forgotten(fields))
    statuses = [status for fields in told_of if (status := _read_job(fields)) is not None]
    told = {status.id for status in statuses if status.index is not None}
    waiting = {status.id for status in statuses if status.pending_indices}
    return [
        status
        for status in statuses
        if not (status.index is None and not status.pending_indices and status.id in told)
        and not (status.index is not None and status.state in _WAITING and status.id in waiting)
    ]


def _split_jobs(output: str) -> Iterator[dict[str, str]]:
    """Plain comparisons, not expressions: there may be ten thousand jobs, and half a million lines."""
    fields: dict[str, str] = {}
    last = ""
    for line in output.splitlines():
        if line.startswith("    "):
            name, equals, value = line[4:].partition(" = ")
            if equals and fields and " " not in name:
                last = name
                fields.setdefault(name, value)
                continue
        elif line.startswith(_HEADER):
            if fields:
                yield fields
            fields, last = {_HEADER: line[len(_HEADER) :].strip()}, ""
            continue
        if last and line.strip():  # a long value goes on behind a tab
            fields[last] += line.removeprefix("\t")
    if fields:
        yield fields


def _split_id(text: str) -> tuple[str, int | None] | None:
    """`12[3].pbs1` is the task 3 of the job `12[].pbs1`."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    server = match[4] or ""
    if match[3]:
        return f"{match[1]}[]{server}", int(match[3])
    return f"{match[1]}{match[2] or ''}{server}", None


def _has_run(fields: Mapping[str, str]) -> bool:
    return "exec_host" in fields or "run_count" in fields


def _is_task(fields: Mapping[str, str]) -> bool:
    return "[" in fields[_HEADER] and "[]" not in fields[_HEADER]


def _is_forgotten(fields: Mapping[str, str]) -> bool:
    return _is_task(fields) and fields.get("job_state") in _OVER and not _has_run(fields)


def _drop_array_fields(fields: Mapping[str, str]) -> Mapping[str, str]:
    """What a task says of itself: one that never ran shows when its array began, and how that ended."""
    if not _is_task(fields) or _has_run(fields):
        return fields
    own = {name: value for name, value in fields.items() if name not in ("stime", "comment", "Exit_status")}
    return own | ({"substate": _DELETED} if _is_forgotten(fields) else {})


def _read_job(told: Mapping[str, str]) -> JobStatus | None:
    name = _split_id(told[_HEADER])
    if name is None:
        return None
    fields = _drop_array_fields(told)
    letter = fields.get("job_state", "")
    code = _read_code(fields.get("Exit_status", ""))
    is_over = letter in _OVER
    state = _find_end(fields, code) if is_over else _STATES.get(letter, State.UNKNOWN)
    remaining = "" if is_over or name[1] is not None else fields.get("array_indices_remaining", "").strip("- ")
    if remaining and state is State.RUNNING:  # the entry stands for the tasks that wait
        state = State.QUEUED
    signal = code - _SIGNALS if code is not None and code > _SIGNALS else None
    return JobStatus(
        id=name[0],
        index=name[1],
        state=state,
        raw=letter if code is None else f"{letter}, Exit_status {code}",
        pending_indices=remaining,
        reason=UNMET if _is_unmet(fields, code) else fields.get("comment", ""),
        name=fields.get("Job_Name", ""),
        user=fields.get("Job_Owner", "").partition("@")[0],
        queue=fields.get("queue", ""),
        nodes=_list_nodes(fields.get("exec_host", "")),
        exit_code=code if signal is None and code is not None and code >= 0 else None,
        signal=signal,
        submitted=read_printed_time(fields.get("ctime", "")),
        started=None if remaining else read_printed_time(fields.get("stime", "")),
        ended=read_printed_time(fields.get("obittime") or fields.get("mtime", "")) if is_over else None,
        time_limit=read_seconds(fields.get("Resource_List.walltime", "")),
        details=tuple((each, fields[each]) for each in _SHOWN if fields.get(each)),
    )


def _find_end(fields: Mapping[str, str], code: int | None) -> State:
    is_deleted = fields.get("substate") == _DELETED
    if code is None:  # it never ran, or PBS forgot: LOST is what the job's own record may mend
        return State.CANCELLED if is_deleted or _is_unmet(fields, code) else State.LOST
    if code == _TIME_CODE or code in _MEMORY_CODES or code in _NODE_CODES:
        if code == _TIME_CODE:
            return State.TIMEOUT
        return State.OUT_OF_MEMORY if code in _MEMORY_CODES else State.NODE_FAILED
    if code > _SIGNALS:
        return _find_limit(fields, code - _SIGNALS) or (
            State.CANCELLED if is_deleted or code - _SIGNALS == _TERMINATE else State.FAILED
        )
    if is_deleted:
        return State.CANCELLED
    return State.DONE if code == 0 else State.FAILED


def _is_unmet(fields: Mapping[str, str], code: int | None) -> bool:
    """Whether a job was deleted because of one that it depends on: it is over, and never ran."""
    is_over = fields.get("job_state") in _OVER and code is None
    return is_over and fields.get("depend", "").startswith(("after", "on:")) and not _has_run(fields)


def _find_limit(fields: Mapping[str, str], signal: int) -> State | None:
    """Older servers kill and do not say why: compare what was used with what was asked for."""
    lasted = read_seconds(fields.get("resources_used.walltime", ""))
    allowed = read_seconds(fields.get("Resource_List.walltime", ""))
    if lasted is not None and allowed and lasted >= allowed:
        return State.TIMEOUT
    used, asked = read_size(fields.get("resources_used.mem", "")), read_size(fields.get("Resource_List.mem", ""))
    if signal == _KILL and used and asked and used >= 0.98 * asked:
        return State.OUT_OF_MEMORY
    return None


def _list_nodes(hosts: str) -> str:
    """`n1/0*4+n2/0*4` as `n1,n2`."""
    return ",".join(dict.fromkeys(part.partition("/")[0].strip("()") for part in hosts.split("+") if part))


def _read_code(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,9}", text.strip()) else None


def read_size(text: str) -> int | None:
    """Bytes of `1024kb`."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * 1024 ** _POWERS[match[2].lower()] if match else None


def _read_table(output: str) -> Iterator[JobStatus]:
    """The columns of `qstat -u`, which a qstat prints that knows no -w beside -f."""
    for line in output.splitlines():
        words = line.split()
        name = _split_id(words[0]) if len(words) >= 10 else None
        if name is None or len(words[9]) != 1 or words[9] in _OVER:
            continue
        yield JobStatus(
            id=name[0],
            index=name[1],
            state=_STATES.get(words[9], State.UNKNOWN),
            raw=words[9],
            name=words[3],
            user=words[1],
            queue=words[2],
        )
