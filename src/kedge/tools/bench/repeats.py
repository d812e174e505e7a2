# SPDX-License-Identifier: BSD-3-Clause
"""How often a bench does what it times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kedge.base.frozen import frozen

T = TypeVar("T")


@frozen
class Repeats:
    """Runs before the first timing, and timed ones."""

    warmup: int
    timed: int

    def collect(self, work: Callable[[], T]) -> list[T]:
        """What the timed runs give."""
        return [work() for _ in range(self.warmup + self.timed)][self.warmup :]
