# SPDX-License-Identifier: BSD-3-Clause
"""Times, counts, arrays and dependencies that several schedulers write alike. What cannot be read raises ValueError."""

from __future__ import annotations

import re

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
