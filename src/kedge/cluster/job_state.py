# SPDX-License-Identifier: BSD-3-Clause
"""The states of jobs, in the same words for all schedulers; the scheduler's own word is kept beside it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kedge.base.frozen import JsonValue, as_dict, frozen, list_names


class State(StrEnum):
    """The states a job can be in."""

    QUEUED = "queued"
    HELD = "held"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failed"
    PREEMPTED = "preempted"
    LOST = "lost"  # the scheduler no longer knows it, and its end is unknown
    UNKNOWN = "unknown"  # the scheduler's word is not in kedge's tables

    @property
    def word(self) -> str:
        """The state as people read it, in sacct's words; --json and Python keep the value."""
        return _SACCT_WORDS.get(self, self.value)

    @property
    def is_final(self) -> bool:
        """Whether the state can no longer change. LOST is not final: accounting may be written later."""
        return self in _FINAL

    @property
    def is_over(self) -> bool:
        """Whether waiting for it is pointless: it ended, or is lost."""
        return self in _FINAL or self is State.LOST


_SACCT_WORDS = {State.QUEUED: "pending", State.DONE: "completed"}
_FINAL = frozenset(
    (
        State.DONE,
        State.FAILED,
        State.CANCELLED,
        State.TIMEOUT,
        State.OUT_OF_MEMORY,
        State.NODE_FAILED,
        State.PREEMPTED,
    )
)


@frozen
class JobStatus:
    """The status of one job or one task of an array; times are seconds since 1970."""

    id: str  # the job's own id, without the index
    state: State
    raw: str  # the state in the scheduler's words
    index: int | None = None  # of an array's task
    pending_indices: str = ""  # pending tasks of an array, as `4-9`; the scheduler lists them as one
    reason: str = ""  # why it is pending or failed, in the scheduler's words
    name: str = ""
    user: str = ""
    queue: str = ""
    nodes: str = ""  # names of the nodes, as the scheduler writes them
    exit_code: int | None = None
    signal: int | None = None
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    time_limit: int | None = None  # seconds
    details: tuple[tuple[str, str], ...] = ()  # more fields a backend found, for `status`
    attempts: int = 0  # how often its script started, if it wrote that down

    @property
    def shown_id(self) -> str:
        """`12`, `12_3`, `12_[4-9]`."""
        if self.pending_indices:
            return f"{self.id}_[{self.pending_indices}]"
        return self.id if self.index is None else f"{self.id}_{self.index}"

    @property
    def outcome(self) -> str:
        """The state, with the signal or exit code of a failure: `completed`, `failed with exit code 3`."""
        if self.state is State.FAILED and self.signal:
            return f"{self.state.word} with signal {self.signal}"
        if self.state is State.FAILED and self.exit_code is not None:
            return f"{self.state.word} with exit code {self.exit_code}"
        return self.state.word

    def as_dict(self) -> dict[str, object]:
        """The status as `--json` prints it."""
        return {**as_dict(self), "details": dict(self.details)}


def decode_status(fields: Mapping[str, object]) -> JobStatus:
    """The status from a JSON object; ignores names of a later kedge."""
    known = {name: fields[name] for name in list_names(JobStatus) if name in fields}
    word = str(fields["state"])
    known["state"] = State(word) if word in list(State) else State.UNKNOWN
    details = fields.get("details")
    known["details"] = tuple((str(a), str(b)) for a, b in details) if isinstance(details, list) else ()
    return JobStatus(**known)  # type: ignore[arg-type]  # kedge wrote it; a wrong type shows as it is


# What a job was given and what it used, in the same values for all schedulers.


@frozen
class JobUsage(JsonValue):
    """One job or task of an array, as accounting knows it; None is unknown. Memory is that of the fullest node."""

    seconds: float | None = None  # how long it ran
    cpus: int | None = None  # that it had, on all nodes
    cpu_seconds: float | None = None
    memory: int | None = None  # the most that it used, as the scheduler counts it
    memory_asked: int | None = None
    gpus: int | None = None  # that it had, on all nodes
