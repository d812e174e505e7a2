# SPDX-License-Identifier: BSD-3-Clause
"""`qstat -j ID`: what one job asked for, and why it waits or is in error."""

from __future__ import annotations

import re

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.gridengine.listing import read_state
from kedge.cluster.schedulers.times import read_printed_time, read_seconds

_FIELD = re.compile(r"([A-Za-z_][\w/ -]*?)(?:\s+(\d+))?:\s*(.*)")  # the number is a task's
_INDENT = " " * 20
_STAMP = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d \[[^\]]*\]:\s*")
_TIME_LIMIT = re.compile(r"(?:^|,)h_rt=([\d:]+)")
_SHOWN = (
    "hard resource_list",
    "parallel environment",
    "hold_jid",
    "predecessor_jobs",
    "usage",
    "cwd",
    "execution_time",
)


def parse_job_detail(output: str) -> list[JobStatus]:
    """The job, with all reasons in one text; an empty `raw` means that only the list knows its state."""
    fields = _read_fields(output)
    id = (fields.get("job_number") or [""])[0]
    if not id.isdecimal():
        return []
    reasons = [_STAMP.sub("", each) for each in (*fields.get("error reason", []), *fields.get("scheduling info", []))]
    limit = _TIME_LIMIT.search((fields.get("hard resource_list") or [""])[0])
    shown = [(name, "; ".join(fields[name])) for name in _SHOWN if name in fields]
    state, raw = _find_state(fields)
    return [
        JobStatus(
            id=id,
            state=state,
            raw=raw,
            reason="; ".join(dict.fromkeys(reasons)),
            name=(fields.get("job_name") or [""])[0],
            user=(fields.get("owner") or [""])[0],
            submitted=read_printed_time((fields.get("submission_time") or [""])[0]),
            time_limit=read_seconds(limit[1]) if limit else None,
            details=tuple(shown),
        )
    ]


def _read_fields(output: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in output.splitlines():
        if line.startswith(_INDENT):  # the same field goes on
            current.append(line.strip())
            continue
        field = _FIELD.match(line)
        if field is not None:
            current = found.setdefault(field[1], [])
            current.append(field[3].strip())
    return found


def _find_state(fields: dict[str, list[str]]) -> tuple[State, str]:
    """Newer versions say it; 8.1.9 does not, and an empty word sends whoever asks to the list."""
    letters = (fields.get("job_state") or [""])[0]
    return (read_state(letters), letters) if letters else (State.UNKNOWN, "")
