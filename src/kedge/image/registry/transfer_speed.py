# SPDX-License-Identifier: BSD-3-Clause
"""Limits on slow transfers: seconds without data, bytes per second; and when a server asks to try again."""

from __future__ import annotations

import email.utils

from kedge.base.frozen import frozen

_FAST = 4 << 20  # bytes per second
_PROVEN = 1 << 20  # bytes that a connection has to bring before it counts as fast


@frozen
class SpeedLimits:
    """The limits that the user accepts."""

    stall: float = 60.0  # seconds without data after which the connection is given up
    least: int = 0  # bytes per second, on average over `stall` seconds; 0: any speed will do


class SpeedMeter:
    """Adds up bytes and the time spent waiting for them: time in which nobody reads does not count."""

    def __init__(self, pace: SpeedLimits) -> None:
        self._pace = pace
        self._seconds = 0.0
        self._received = 0
        self._total = 0
        self.is_fast = False  # whether the last pieces came so quickly that waiting for many at once is no wait

    def add(self, seconds: float, received: int) -> float | None:
        """Count a piece; returns the speed if it was too low, else None."""
        self._total += received
        is_any = not self._pace.least  # else each piece is wanted at once, to be measured
        self.is_fast = is_any and self._total >= _PROVEN and received >= seconds * _FAST
        self._seconds += seconds
        self._received += received
        if not self._pace.least or self._seconds < self._pace.stall:
            return None
        speed = self._received / self._seconds
        self._seconds, self._received = 0.0, 0
        return speed if speed < self._pace.least else None


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait, from a number or an HTTP date; None when absent or unreadable."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
