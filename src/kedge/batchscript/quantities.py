# SPDX-License-Identifier: BSD-3-Clause
"""Times, sizes, arrays and dependencies as each scheduler writes them. What cannot be read raises ValueError."""

from __future__ import annotations

import re

from kedge.errors import InvalidJob
from kedge.model.job import Dependency, DependencyKind, JobArray

_SLURM_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<dh>\d+)(?::(?P<dm>\d+))?(?::(?P<ds>\d+))?|(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?)\Z"
)
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_slurm_time(text: str) -> int:
    """Seconds: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    found = _SLURM_TIME.match(text)
    if found is None:
        raise ValueError(f"'{text}' is not a time: write minutes, H:MM:SS or D-HH:MM:SS")
    if found["days"]:
        hours, minutes, seconds = (int(found[name] or 0) for name in ("dh", "dm", "ds"))
        return int(found["days"]) * 86400 + hours * 3600 + minutes * 60 + seconds
    first, second, third = found["a"], found["b"], found["c"]
    if third is not None:
        return int(first) * 3600 + int(second) * 60 + int(third)
    return int(first) * 60 + int(second or 0)


def parse_clock(text: str, *, needs_all: bool) -> int:
    """Seconds, or H:M:S; Grid Engine takes nothing between the two (`needs_all`), PBS takes M:S as well."""
    parts = text.split(":")
    if len(parts) > 3 or (needs_all and len(parts) == 2) or not all(part.isdecimal() for part in parts):
        raise ValueError(f"'{text}' is not a time: write seconds or H:MM:SS")
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return total


def parse_slurm_memory(text: str) -> int:
    """Bytes: a whole number of megabytes, or with K, M, G or T behind it, and a B if one likes."""
    found = re.fullmatch(r"(\d+)(?:([KMGT])B?)?", text, re.I)
    if found is None:
        raise ValueError(f"'{text}' is not an amount of memory: write a whole number with K, M, G or T, such as 32G")
    return int(found[1]) << 10 * _POWERS[(found[2] or "m").lower()]


def parse_gridengine_memory(text: str) -> int:
    """Bytes, or with k, K, m, M, g, G behind it: small letters are powers of 1000, capitals of 1024."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", text)
    if found is None:
        raise ValueError(f"'{text}' is not an amount of memory: write a number with K, M or G, such as 4G")
    base = 1000 if found[2].islower() else 1024
    return int(float(found[1]) * float(base ** _POWERS[found[2].lower()]))


def parse_pbs_memory(text: str) -> int:
    """Bytes, or with kb, mb, gb or tb behind it."""
    found = re.fullmatch(r"(\d+)([kmgtp]?)(b|w)?", text, re.I)
    if found is None:
        raise ValueError(f"'{text}' is not an amount of memory: write a whole number with mb or gb, such as 32gb")
    size = int(found[1]) << 10 * _POWERS[found[2].lower()]
    return size * 8 if (found[3] or "").lower() == "w" else size


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
    found: list[Dependency] = []
    for part in text.split(","):
        kind, *jobs = part.split(":")
        if kind not in DependencyKind.__members__.values() or not jobs or not all(jobs):
            raise ValueError(f"'{part}' is not a dependency that every scheduler knows")
        found += [Dependency(DependencyKind(kind), job) for job in jobs]
    return tuple(found)
