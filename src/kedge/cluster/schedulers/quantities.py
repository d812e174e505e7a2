# SPDX-License-Identifier: BSD-3-Clause
"""Times, counts, arrays and dependencies that several schedulers write alike. What cannot be read raises ValueError."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

from kedge.cluster.job import Dependency, DependencyKind, JobArray
from kedge.errors import InvalidJob

# of 1024 or 1000, by the letter behind a size
POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_clock(text: str, *, needs_all: bool) -> int:
    """Seconds, or H:M:S; Grid Engine takes nothing between the two (`needs_all`), PBS takes M:S as well."""
    parts = text.split(":")
    if len(parts) > 3 or (needs_all and len(parts) == 2) or not all(part.isdecimal() for part in parts):
        raise ValueError(f"'{text}' is not a time: write seconds or H:MM:SS")
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return total


def parse_count(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or not text.isascii() or not 0 < int(text[:12]) < 10**9:
        raise ValueError(f"'{text}' is not a number")
    return int(text)


def parse_array(text: str) -> JobArray:
    """`0-9`, `1,3,5-11:2`, with `%4` for how many run at once; Slurm's brackets around the indices say nothing."""
    try:
        return JobArray.parse(re.sub(r"[\[\]]", "", text))
    except InvalidJob as problem:
        raise ValueError(problem.message) from None


def parse_dependencies(text: str) -> tuple[Dependency, ...]:
    """`afterok:12:13,afterany:14`, as Slurm and PBS write it."""
    dependencies: list[Dependency] = []
    for part in text.split(","):
        kind, *jobs = part.split(":")
        if kind not in DependencyKind.__members__.values() or not jobs or not all(jobs):
            raise ValueError(f"'{part}' is not a dependency that every scheduler knows")
        dependencies += [Dependency(DependencyKind(kind), job) for job in jobs]
    return tuple(dependencies)


# Times as the programs of Grid Engine and PBS print them, in the zone of the machine they run on.

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
