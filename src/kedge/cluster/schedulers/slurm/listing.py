# SPDX-License-Identifier: BSD-3-Clause
"""All jobs of a user from one call of squeue, which keeps those that ended for some minutes (MinJobAge)."""

from __future__ import annotations

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.backend import Query
from kedge.cluster.schedulers.slurm.values import TIME_ENVIRONMENT, read_duration, read_state, read_text, read_time
from kedge.errors import SchedulerFailed

# array's id, index, state, user, partition, nodes, submitted, start, end, limit, reason; last the name: it may be
# anything
_FORMAT = "%F|%K|%T|%u|%P|%N|%V|%S|%e|%l|%r|%j"
_SEPARATORS = _FORMAT.count("|")
# variables of a user's shell that would hide jobs, and 0 for all of an array's indices, not the first 64 characters
_ENVIRONMENT = (
    TIME_ENVIRONMENT,
    ("SLURM_BITSTR_LEN", "0"),
    *((f"SQUEUE_{name}", None) for name in ("ACCOUNT", "LICENSES", "NAMES", "PARTITION", "QOS", "STATES", "USERS")),
)
_WAITING = (State.QUEUED, State.HELD)


def list_query(user: str) -> Query:
    """squeue, with jobs of all states and of hidden partitions."""
    argv = ("squeue", "--noheader", "--all", "--states=all", f"--user={user}", f"--format={_FORMAT}")
    return Query(argv, environment=_ENVIRONMENT)


def parse_list(output: str) -> list[JobStatus]:
    """Return one entry for each line; what follows a line break in a job's name is passed over."""
    statuses = []
    other = ""
    for line in output.split("\n"):
        fields = line.split("|", _SEPARATORS)
        if len(fields) == _SEPARATORS + 1 and fields[0].isdecimal() and fields[0].isascii():
            statuses.append(_make_status(fields))
        elif line.strip():
            other = other or line
    if other and not statuses:
        raise SchedulerFailed("squeue did not print a list of jobs", context={"said": other[:500]})
    return statuses


def split_indices(text: str) -> tuple[int | None, str]:
    """The index of one task, or the indices of those that wait: `3` or `4-9`, without the limit `%2`."""
    text = text.strip("[]").partition("%")[0]
    if text.isdecimal() and text.isascii() and len(text) < 10:
        return int(text), ""
    return None, read_text(text)


def _make_status(fields: list[str]) -> JobStatus:
    id, indices, raw, user, queue, nodes, submitted, start, end, limit, reason, name = fields
    reason = read_text(reason)
    state = read_state(raw, reason)
    index, pending = split_indices(indices)
    waits = state in _WAITING  # its times are guesses of the scheduler
    started = None if waits else read_time(start)
    return JobStatus(
        id=id,
        state=state,
        raw=raw,
        index=index,
        pending_indices=pending,
        reason=reason,
        name=name,
        user=user,
        queue=queue,
        nodes=read_text(nodes),
        submitted=read_time(submitted),
        started=started,
        ended=read_time(end) if state.is_final else None,
        time_limit=read_duration(limit),
        details=(("expected start", start),) if waits and read_text(start) else (),
    )
