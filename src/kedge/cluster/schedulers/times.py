# SPDX-License-Identifier: BSD-3-Clause
"""Times as the programs of Grid Engine and PBS print them, in the zone of the machine they run on."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LONG = re.compile(r"\w{3} (\w{3}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})")
_SHORT = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)(?:\.\d+)?")
_CLOCK = re.compile(r"(?:(\d{1,9}):)?(?:(\d{1,9}):)?(\d{1,12})")
_UNSET = 86400.0  # the first day of 1970 is how "never" is written


def read_iso_time(text: str) -> float | None:
    """`2026-11-15T07:33:19`, as in XML."""
    try:
        return _drop_unset(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(4096)  # jobs of an array have the same ones
def read_printed_time(text: str) -> float | None:
    """`Sun Nov 15 07:33:19 2026`, or `11/15/2026 07:33:19.123` of Univa's; `-/-` is never."""
    long, short = _LONG.fullmatch(text.strip()), _SHORT.fullmatch(text.strip())
    try:
        if long is not None and long[1] in _MONTHS:
            clock = (int(long[3]), int(long[4]), int(long[5]))
            moment = datetime(int(long[6]), _MONTHS.index(long[1]) + 1, int(long[2]), *clock)
        elif short is not None:
            clock = (int(short[4]), int(short[5]), int(short[6]))
            moment = datetime(int(short[3]), int(short[1]), int(short[2]), *clock)
        else:
            return None
        return _drop_unset(moment.timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def read_seconds(text: str) -> int | None:
    """`3`, `0:10:0`: a limit as it was asked for."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    parts = [int(each) for each in match.groups() if each is not None]
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + part
    return seconds


def _drop_unset(seconds: float) -> float | None:
    return seconds if seconds > _UNSET else None
