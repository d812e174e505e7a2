# SPDX-License-Identifier: BSD-3-Clause
"""The options of a job in the local queue, on the command line and as `#KEDGE --time=1:00:00` lines of its script.

A line has one option; its value is the rest of the line, or a JSON string where it has to hold a line break. As with
other schedulers, lines behind the first command count for nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from kedge.base.duration import parse_duration
from kedge.base.frozen import frozen, replace
from kedge.base.nearest import propose
from kedge.cluster.job import JobArray, parse_dependencies
from kedge.cluster.memory import parse_memory
from kedge.errors import InvalidJob
from kedge.jobs.local.queue_files import LocalRequest

_PREFIX = "#KEDGE"
_MOST = 1_000_000
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@frozen
class _Option:
    """One option: the field of Request it decides, how its value is read, and what it is for."""

    field: str
    metavar: str
    summary: str


OPTIONS = {
    "name": _Option("name", "NAME", "name of the job"),
    "directory": _Option("directory", "DIR", "directory it runs in (default: where it was submitted)"),
    "output": _Option("output", "FILE", "output file; {name}, {id} and {index} are replaced"),
    "error": _Option("error", "FILE", "error file (default: the output file)"),
    "cpus": _Option("cpus", "N", "CPUs it uses (default: 1)"),
    "memory": _Option("memory", "SIZE", "memory limit, such as 4G"),
    "gpus": _Option("gpus", "N", "GPUs, for its exclusive use"),
    "exclusive": _Option("is_exclusive", "", "no other job starts while it runs"),
    "time": _Option("time", "TIME", "time limit, such as 2h or 2:00:00"),
    "array": _Option("array", "LIST", "a task for each index: 0-9, 1,3,5, 1-100%10 (ten at once)"),
    "after": _Option(
        "after", "[KIND:]ID", "start when that job has completed, or afterany, afternotok, after (its start)"
    ),
    "begin": _Option("begin", "TIME", "earliest start: now+2h, 18:30 or 2030-01-31T08:00"),
}


def read_directives(text: str) -> dict[str, str]:
    """The options that a script's own lines give; raises InvalidJob that names the line."""
    options: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split(None, 1)
        if words and not words[0].startswith("#"):
            break  # the first command
        if words and words[0] == _PREFIX:
            name, value = _read_line(words[1].strip() if len(words) > 1 else "", number)
            options[name] = f"{options[name]},{value}" if name == "after" and name in options else value
    return options


def _read_line(text: str, number: int) -> tuple[str, str]:
    matched = re.fullmatch(r"--([a-z-]+)(?:(?:=|\s+)(.*))?", text)
    if matched is None:
        raise InvalidJob(
            f"line {number}: '{text[:80]}' is not an option", hint="a line looks like: #KEDGE --time=1:00:00"
        )
    name, value = matched[1], matched[2] or ""
    if name not in OPTIONS:
        hint = propose(name, OPTIONS) or f"they are: {', '.join('--' + option for option in OPTIONS)}"
        raise InvalidJob(f"line {number}: the local queue has no option --{name}", context={"key": name}, hint=hint)
    if value.startswith('"'):
        try:
            value = json.loads(value)
        except ValueError:
            raise InvalidJob(
                f"line {number}: {value[:80]} is not text in double quotes", context={"key": name}
            ) from None
    return name, str(value)


def apply_options(base: LocalRequest, options: Mapping[str, str]) -> LocalRequest:
    """The request with what was asked for; raises InvalidJob that names the option."""
    values: dict[str, Any] = {}
    for name, text in options.items():
        try:
            values[OPTIONS[name].field] = _READERS.get(name, str)(text)
        except InvalidJob as problem:
            context = {"key": name, **problem.context}
            raise InvalidJob(f"--{name}: {problem.message}", context=context, hint=problem.hint) from None
    return replace(base, **values)


def _read_count(text: str, least: int) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or not least <= int(text) <= _MOST:
        raise InvalidJob(f"'{text[:60]}' is not a number of at least {least}")
    return int(text)


def _read_array(text: str) -> str:
    return str(JobArray.parse(text))


def _read_after(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((dependency.kind.value, dependency.job) for dependency in parse_dependencies(text))


def _read_flag(text: str) -> bool:
    if text.lower() in ("", "yes", "true", "1"):
        return True
    if text.lower() in ("no", "false", "0"):
        return False
    raise InvalidJob(f"'{text[:60]}' is neither yes nor no")


def _read_begin(text: str) -> float:
    """`now+90`, `now+2h`, `18:30` (today or tomorrow), `2030-01-31`, `2030-01-31T08:00[:00]`."""
    word = text.strip()
    later = re.fullmatch(r"now(?:\+([0-9]{1,9})([smhd]?)[a-z]*)?", word)
    if later:
        return time.time() + int(later[1] or 0) * _UNITS[later[2] or ""]
    clock = re.fullmatch(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", word)
    day = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?)?", word)
    today = time.localtime()
    try:
        if clock:
            numbers = [today.tm_year, today.tm_mon, today.tm_mday, *(int(part or 0) for part in clock.groups())]
            moment = _make_time(numbers)
            return moment if moment > time.time() else _make_time([*numbers[:2], numbers[2] + 1, *numbers[3:]])
        if day:
            return _make_time([int(part or 0) for part in day.groups()])
    except (ValueError, OverflowError):
        pass
    raise InvalidJob(f"'{text[:60]}' is not a start time", hint="write it as now+2h, 18:30 or 2030-01-31T08:00")


def _make_time(numbers: list[int]) -> float:
    year, month, day, hour, minute, second = numbers
    if not (1 <= month <= 12 and 1 <= day <= 32 and hour < 24 and minute < 60 and second < 60):
        raise ValueError
    return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))


_READERS: dict[str, Callable[[str], Any]] = {
    "cpus": lambda text: _read_count(text, 1),
    "gpus": lambda text: _read_count(text, 0),
    "memory": parse_memory,
    "time": parse_duration,
    "array": _read_array,
    "after": _read_after,
    "begin": _read_begin,
    "exclusive": _read_flag,
}
