# SPDX-License-Identifier: BSD-3-Clause
"""Heavy verbs run in a child, so that a small process is left to explain it when the kernel kills them for memory."""

from __future__ import annotations

from collections.abc import Callable

from kedge.posix.process import run_in_child

_KILLED = 128 + 9


def run_guarded(what: str, work: Callable[[], int]) -> int:
    """Run `work` in a child and return its status; LimitReached when it was killed. There must be one thread only."""
    watches = []

    def watch() -> None:
        from kedge.host.memory import KillWatch  # late: loaded while the child works already

        watches.append(KillWatch())

    status = run_in_child(work, watch)
    if status == _KILLED:
        raise watches[0].explain(what)
    return status
