# SPDX-License-Identifier: BSD-3-Clause
"""Explains deaths by the memory limit, of a child or of ourselves, and says how to run the work inside a job.

Nobody can catch SIGKILL. So a pull leaves a mark while it runs; the next one finds the mark of a dead process,
compares the kernel's count of such kills, and says what happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kedge.base.frozen import as_dict, frozen
from kedge.base.size import format_size
from kedge.errors import LimitReached, ProgramFailed
from kedge.system.host.cgroups import read_hierarchies
from kedge.system.host.limits import Limits, read_limits
from kedge.system.owned_names import own_name, owner_is_gone
from kedge.system.programs import find_program

_KILLED = 128 + 9
_MARK_LIMIT = 64 << 10
_FORGET_AFTER = 7 * 86400.0  # seconds; a mark of another machine is nobody's any more


@frozen
class _WorkMark:
    """The mark of a piece of work: what it was, and what the limits were."""

    what: str
    host: str
    began: float
    memory: int | None
    memory_from: str
    kills: int | None
    group: str


def count_memory_kills(root: Path = Path("/")) -> tuple[int | None, str]:
    """How many processes the kernel killed in our control group because of its limit, and the file that says so."""
    for hierarchy in read_hierarchies(root):
        if hierarchy.version == 1 and "memory" not in hierarchy.controllers:
            continue
        name = "memory.events" if hierarchy.version == 2 else "memory.oom_control"
        for path, text in hierarchy.read_values(name):
            for line in text.splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill" and value.strip().isdecimal():
                    return int(value), str(path)
    return None, ""


def explain_memory(limits: Limits) -> str:
    """Say in one sentence how much memory there is, and what limits it."""
    if limits.memory is None:
        return "this process has no memory limit"
    return f"this process may use {format_size(limits.memory)} of memory ({limits.memory_from})"


def suggest_job(argv: Sequence[str] | None = None) -> str:
    """The command that runs `argv` (this very command, if not given) inside a job of the scheduler that is here."""
    words = shlex.join(argv if argv is not None else ["kedge", *sys.argv[1:]])
    from kedge.cluster.schedulers.choose import list_facts  # late: only where memory is short

    for facts in list_facts(also_recognised=True):
        prefix = facts.job_with_memory
        if prefix and find_program(prefix.split()[0]):
            return f"{prefix} {words}"
    return ""


def make_memory_error(what: str, limits: Limits, argv: Sequence[str] | None = None) -> LimitReached:
    """The error to raise when memory was not enough."""
    job = suggest_job(argv)
    fewer = "use fewer threads (--threads 1)"
    return LimitReached(
        f"{what} ran out of memory: {explain_memory(limits)}",
        context={"memory": str(limits.memory), "limit": limits.memory_from},
        hint=f"run it in a job with more memory: {job}" if job else f"run it in a job, or {fewer}",
    )


@contextlib.contextmanager
def watch_memory(what: str, root: Path = Path("/")) -> Iterator[None]:
    """Turn a MemoryError, and the failure of a child that the kernel killed meanwhile, into LimitReached."""
    before, _ = count_memory_kills(root)
    try:
        yield
    except MemoryError as problem:
        raise make_memory_error(what, read_limits(root)) from problem
    except ProgramFailed as problem:
        after, _ = count_memory_kills(root)
        if after is not None and before is not None and after > before:
            raise make_memory_error(what, read_limits(root)) from problem
        raise


class KillWatch:
    """Counts the kernel's memory kills from now on, to say later why another process was killed."""

    def __init__(self) -> None:
        self._before, _ = count_memory_kills()

    def has_seen_kills(self) -> bool:
        """Whether the kernel killed a process for want of memory since then."""
        after, _ = count_memory_kills()
        return self._before is not None and after is not None and after > self._before

    def explain(self, what: str) -> LimitReached:
        """The error for `what`, which was ended by SIGKILL."""
        limits = read_limits()
        if self.has_seen_kills():
            return make_memory_error(what, limits)
        job = suggest_job()
        return LimitReached(
            f"{what} was killed by SIGKILL: by somebody, by the site's watchdog, or because the machine ran out of "
            f"memory; {explain_memory(limits)}",
            hint=f"run it in a job: {job}" if job else "run it in a job: login nodes often limit time and memory",
        )


@contextlib.contextmanager
def mark_attempt(folder: Path, what: str, host: str | None = None) -> Iterator[None]:
    """Leave a mark in `folder` while the block runs; `host` is this one if not given. A full disk leaves no mark."""
    limits = read_limits()
    kills, group = count_memory_kills()
    attempt = _WorkMark(
        what=what,
        host=host or os.uname().nodename,
        began=time.time(),
        memory=limits.memory,
        memory_from=limits.memory_from,
        kills=kills,
        group=group,
    )
    path = folder / own_name("attempt")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(as_dict(attempt)) + "\n")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def explain_killed(folder: Path, what: str | None = None) -> list[str]:
    """A sentence for each earlier attempt that ended without a word; each is told once.

    `what` restricts it to attempts at the same thing.
    """
    sentences = []
    for path in _list_marks(folder):
        attempt = _read_mark(path)
        gone = owner_is_gone(path.name)
        if gone is None and attempt is not None and time.time() - attempt.began > _FORGET_AFTER:
            with contextlib.suppress(OSError):
                path.unlink()
        if not gone or (what is not None and attempt is not None and attempt.what != what):
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            if attempt is not None:
                sentences.append(describe_killed(attempt))
    return sentences


def list_attempts(folder: Path) -> list[_WorkMark]:
    """The marks that are there: of work under way, and of work that ended without a word."""
    return [attempt for attempt in map(_read_mark, _list_marks(folder)) if attempt is not None]


def describe_killed(attempt: _WorkMark) -> str:
    """What became of an attempt whose process is gone."""
    kills = _read_kills(attempt.group)
    limit = "" if attempt.memory is None else f"; it could use {format_size(attempt.memory)} ({attempt.memory_from})"
    job = suggest_job()
    remedy = f". Run it in a job with more memory: {job}" if job else ". Use fewer threads (--threads 1)"
    if kills is not None and attempt.kills is not None and kills > attempt.kills:
        return f"the last attempt at {attempt.what} was killed because memory ran out{limit}{remedy}"
    return (
        f"the last attempt at {attempt.what} on {attempt.host} was killed, by somebody, by the site's watchdog, "
        f"or because memory ran out{limit}{remedy}"
    )


def _read_kills(group: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(group).read_text(errors="replace").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
    return None


def _list_marks(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read_mark(path: Path) -> _WorkMark | None:
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(_MARK_LIMIT))
        return _WorkMark(
            what=str(fields["what"]),
            host=str(fields["host"]),
            began=float(fields["began"]),
            memory=int(fields["memory"]) if fields["memory"] is not None else None,
            memory_from=str(fields["memory_from"]),
            kills=int(fields["kills"]) if fields["kills"] is not None else None,
            group=str(fields["group"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
