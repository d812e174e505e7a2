# SPDX-License-Identifier: BSD-3-Clause
"""Runs heavy verbs in a child process, so that the parent can explain it when the kernel kills them for memory."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from kedge.system.process import run_in_child

_KILLED = 128 + 9
_SCORE = Path("/proc/self/oom_score_adj")
_TURN = 0.0002  # seconds; threads that inflate need the interpreter's lock for an instant, and would wait 5 ms for it
_FIRST = 100  # thousandths of the memory limit by which the child seems larger to the kernel than it is


def run_guarded(what: str, work: Callable[[], int], report: Callable[[BaseException], int] | None = None) -> int:
    """Run `work` in a child and return its status; LimitReached when it was killed. There must be one thread only.

    What is raised in the child, by `work` or by a signal before it, is given to `report`, which tells the status.
    """
    watches = []

    def watch() -> None:
        from kedge.cluster.host_memory import KillWatch  # late: loaded while the child works already

        watches.append(KillWatch())

    def work_within_limits() -> int:
        _volunteer()
        sys.setswitchinterval(_TURN)
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            from kedge.system.libc import limit_arenas  # late: few machines limit addresses

            limit_arenas(1)
        return work()

    gc.freeze()  # what is loaded by now is no garbage: neither the child nor our end looks through it
    status = run_in_child(work_within_limits, watch, report)
    if status == _KILLED:
        raise watches[0].explain(what)
    return status


def _volunteer() -> None:
    """Let the kernel take this process before its parent when memory is short: they are of a size at first."""
    with contextlib.suppress(OSError, ValueError):
        _SCORE.write_text(str(min(int(_SCORE.read_text()) + _FIRST, 1000)))
