# SPDX-License-Identifier: BSD-3-Clause
"""Steps of the main thread that a signal must not end halfway: a process is started and noted down, or neither.

Python raises what a handler raises between any two steps of the main thread, also between the start of a process and
the line that remembers it: nobody would end that process then. `cli/signals.py`, whose handlers raise, asks here first,
and waits. Masks would not do: a signal that is blocked in this thread goes to another, and the handler still runs here.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

steps: list[None] = []  # that the main thread is in, one within the other
is_waiting = False  # whether a signal came that is still to be raised


class Undivided:
    """What is done within is not interrupted; what came meanwhile is raised a moment after it."""

    __slots__ = ("_counts",)

    def __enter__(self) -> None:
        threads = sys.modules.get("threading")  # without it there is no other thread
        self._counts = threads is None or threads.current_thread() is threads.main_thread()
        steps.extend((None,) * self._counts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del steps[len(steps) - self._counts :]


def settle_signals() -> None:
    """Return once nothing waits to be raised: for those who wait without letting handlers run from here on."""
    import time  # late: hardly anybody

    while is_waiting and not steps:
        time.sleep(0.001)
