# SPDX-License-Identifier: BSD-3-Clause
"""How slowly an answer may come: the seconds without any data, and the least bytes per second."""

from __future__ import annotations

from dataclasses import dataclass

_FAST = 4 << 20  # bytes per second
_PROVEN = 1 << 20  # bytes that a connection has to bring before it counts as fast


@dataclass(frozen=True, slots=True)
class Pace:
    """What the user accepts."""

    stall: float = 60.0  # seconds without data after which the connection is given up
    least: int = 0  # bytes per second, on average over `stall` seconds; 0: any speed will do


class SpeedMeter:
    """Adds up what arrives and how long that was waited for: time in which nobody reads is not the server's."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._seconds = 0.0
        self._received = 0
        self._total = 0
        self.is_fast = False  # whether the last pieces came so quickly that waiting for many at once is no wait

    def add(self, seconds: float, received: int) -> float | None:
        """Count a piece; the speed where it was too low since the last look, else None."""
        self._total += received
        self.is_fast = self._total >= _PROVEN and received >= seconds * _FAST
        self._seconds += seconds
        self._received += received
        if not self._pace.least or self._seconds < self._pace.stall:
            return None
        speed = self._received / self._seconds
        self._seconds, self._received = 0.0, 0
        return speed if speed < self._pace.least else None
