# SPDX-License-Identifier: BSD-3-Clause
"""States, times and exit codes in the words of squeue, scontrol and sacct.

States: https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES
"""

from __future__ import annotations

import functools
import re
import time

from kedge.cluster.job_state import State

# every program of Slurm prints its times with it; in seconds since 1970 they need no time zone
TIME_ENVIRONMENT = ("SLURM_TIME_FORMAT", "%s")
_STATES = {
    "BOOT_FAIL": State.NODE_FAILED,
    "CANCELLED": State.CANCELLED,
    "COMPLETED": State.DONE,
    "COMPLETING": State.COMPLETING,
    "CONFIGURING": State.QUEUED,
    "DEADLINE": State.TIMEOUT,
    "EXPEDITING": State.QUEUED,
    "FAILED": State.FAILED,
    "LAUNCH_FAILED": State.FAILED,
    "NODE_FAIL": State.NODE_FAILED,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "PENDING": State.QUEUED,
    "POWER_UP_NODE": State.QUEUED,
    "PREEMPTED": State.PREEMPTED,
    "RECONFIG_FAIL": State.NODE_FAILED,
    "REQUEUED": State.QUEUED,
    "REQUEUE_FED": State.QUEUED,
    "REQUEUE_HOLD": State.HELD,
    "RESIZING": State.RUNNING,
    "RESV_DEL_HOLD": State.HELD,
    "RUNNING": State.RUNNING,
    "SIGNALING": State.RUNNING,
    "SPECIAL_EXIT": State.HELD,
    "STAGE_OUT": State.COMPLETING,
    "STOPPED": State.SUSPENDED,
    "SUSPENDED": State.SUSPENDED,
    "TIMEOUT": State.TIMEOUT,
}
# where several words are given, these say more than the one they stand beside
_FLAGS = (State.COMPLETING, State.HELD)
_HELD_REASONS = ("JobHeldUser", "JobHeldAdmin", "launch failed requeued held", "job requeued in held state")
_NOTHING = frozenset(("", "N/A", "n/a", "(null)", "None", "NONE", "Unknown", "None assigned"))
_DURATION = re.compile(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,6}))?(?::(\d{1,6}))?")
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")


@functools.lru_cache(maxsize=256)
def read_state(raw: str, reason: str = "") -> State:
    """Return a state; UNKNOWN for a word that no Slurm up to 25.05 says. `CANCELLED by 1000` and lists are read."""
    words = raw.upper().replace(",", " ").replace("+", " ").split()
    if not words:
        return State.UNKNOWN
    states = [_STATES.get(word, State.UNKNOWN) for word in words if word in _STATES] or [State.UNKNOWN]
    state = next((each for each in states if each in _FLAGS), states[0])
    if words[0] not in _STATES:
        return State.UNKNOWN
    if state is State.QUEUED and reason.replace("_", " ").strip("()").startswith(_HELD_REASONS):
        return State.HELD
    return state


@functools.lru_cache(maxsize=4096)
def read_time(text: str) -> float | None:
    """Seconds since 1970; also from the usual form, which is in the time zone of this machine."""
    if text.isdecimal() and text.isascii() and len(text) < 13:
        return float(text) or None
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


@functools.lru_cache(maxsize=1024)
def read_duration(text: str) -> int | None:
    """Seconds of `1-02:03:04`, `2:03:04` and `03:04`; None for UNLIMITED, Partition_Limit and the like."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, *rest = match.groups()
    parts = [int(each) for each in rest if each is not None]
    if days is not None:  # days are followed by hours
        parts = [*parts, 0, 0][:3]
    seconds = 0
    for part in parts if len(parts) > 1 else [parts[0], 0]:  # a single number is minutes
        seconds = seconds * 60 + part
    return int(days or 0) * 86400 + seconds


def read_exit(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal of `3:0`; a signal of 0 is none."""
    match = _EXIT.fullmatch(text.strip())
    if match is None:
        return None, None
    return int(match[1]), int(match[2]) or None


def read_text(text: str) -> str:
    """The text, or nothing for Slurm's ways to say nothing."""
    return "" if text in _NOTHING else text
