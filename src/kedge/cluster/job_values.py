# SPDX-License-Identifier: BSD-3-Clause
"""Reads values of a job from kedge.toml or flags, and puts them into a job.

Every reader takes a value of TOML or the command line and returns the fields of Job that it sets; an invalid value
raises InvalidJob. The caller adds where the value was.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from kedge.base.duration import parse_duration
from kedge.base.frozen import replace
from kedge.base.patterns import late_pattern
from kedge.cluster.job import Job, JobArray, Parallel, parse_dependencies
from kedge.cluster.job_fields import BY_NAME, JobField
from kedge.errors import InvalidJob

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

MOST = 1_000_000  # nodes, tasks, CPUs; more is a typing error
VARIABLE_NAME = late_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROLS = late_pattern(r"[\x00-\x1f\x7f]")
_GPUS = late_pattern(r"(?:gpu:)?(?:([A-Za-z0-9_.-]+):)?([0-9]{1,7})")
_MEMORY = ("memory", "memory_per_cpu", "memory_per_gpu")
_NUMBERS = 1 << 63  # TOML guarantees no larger integers

_TYPE_NAMES: dict[str, str] = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "a table",
}


def read_value(field: JobField, value: object) -> dict[str, Any]:
    """Return the fields of Job that a value sets; for GPUs the type may be one of them."""
    return KINDS[field.kind](field, value)


def change_job(base: Job, changes: Mapping[str, Any]) -> Job:
    """The job with other values: lists are appended to existing ones, an empty list removes them."""
    values: dict[str, Any] = {}
    if any(changes.get(name) for name in _MEMORY):  # the last of the three wins
        values.update(dict.fromkeys(_MEMORY))
    for name, value in changes.items():
        before = getattr(base, name)
        if name == "environment" and value:
            values[name] = tuple({**dict(before), **dict(value)}.items())
        elif BY_NAME[name].adds and value:
            values[name] = (*before, *value)
        else:
            values[name] = value
    return replace(base, **values)


def name_type(value: object) -> str:
    """The type of a value, in words for users."""
    return _TYPE_NAMES.get(type(value).__name__, "a date or time")


def _refuse_type(value: object, wanted: str) -> InvalidJob:
    return InvalidJob(f"it must be {wanted}, not {name_type(value)}")


def _check_text(value: object, *, one_line: bool) -> str:
    if not isinstance(value, str):
        raise InvalidJob(f"it must be text, not {name_type(value)}", hint='put text in quotes: "like this"')
    if "\0" in value:
        raise InvalidJob("it contains a NUL byte, which no program accepts", hint="remove it")
    if one_line and _CONTROLS.search(value):
        raise InvalidJob(f"{shorten(value)} contains a line break or another control character", hint="remove it")
    return value


def shorten(value: object) -> str:
    """A value as errors quote it."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _turn_to_text(value: object) -> str:
    """Text as it is, numbers as their digits."""
    if isinstance(value, bool):
        raise InvalidJob(
            "true and false are ambiguous here: programs spell them differently", hint='write "1", "0" or "true"'
        )
    if isinstance(value, int) and not -_NUMBERS <= value < _NUMBERS:
        raise InvalidJob("the number is too large", hint="write it as text, in quotes")
    return str(value) if isinstance(value, int | float) else _check_text(value, one_line=False)


def _read_text(field: JobField, value: object) -> dict[str, Any]:
    text = _check_text(value, one_line=False)
    if not text.strip():
        raise InvalidJob("it is empty")
    return {field.name: text}


def _read_line(field: JobField, value: object) -> dict[str, Any]:
    return {field.name: _check_text(value, one_line=True)}


def _read_choice(field: JobField, value: object) -> dict[str, Any]:
    text = _check_text(value, one_line=True)
    if text not in field.choices and (text or field.name == "parallel"):
        from kedge.base.nearest import propose  # late: only for a mistake

        known = ", ".join(field.choices)
        raise InvalidJob(
            f"{shorten(text)} is not one of: {known}", hint=propose(text, field.choices) or f"give one of: {known}"
        )
    return {field.name: Parallel(text) if field.name == "parallel" else text}


def _read_choices(field: JobField, value: object) -> dict[str, Any]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        raise _refuse_type(value, "a list of words")
    chosen: dict[str, None] = {}
    for item in listed:
        word = _check_text(item, one_line=True).strip().lower()
        if word not in (*field.choices, "all", ""):
            raise InvalidJob(f"{shorten(item)} is not one of: {', '.join(field.choices)}, all")
        chosen.update(dict.fromkeys(field.choices if word == "all" else (word,) if word else ()))
    return {field.name: tuple(chosen)}


def _read_count(field: JobField, value: object) -> dict[str, Any]:
    return {field.name: _parse_count(value, 1)}


def _parse_count(value: object, lowest: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(f"{shorten(value)} is not a whole number", hint=f"give a number, {lowest} or more")
    if not lowest <= value <= MOST:
        raise InvalidJob(f"it cannot be {shorten(value)}", hint=f"give a number from {lowest} to {MOST}")
    return value


def _read_gpus(field: JobField, value: object) -> dict[str, Any]:
    kind = ""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 7:  # as nearly always
        value = int(value)
    if isinstance(value, str):
        match = _GPUS.fullmatch(value.strip())
        if match is None:
            raise InvalidJob(f"{shorten(value)} is not a number of GPUs", hint="write it like 4 or a100:4")
        kind, value = match[1] or "", int(match[2])
    count = _parse_count(value, 0)
    if not count:  # 0 removes what the file requests
        return {field.name: None, "gpu_type": ""}
    return {field.name: count, "gpu_type": kind} if kind else {field.name: count}


def _read_memory(field: JobField, value: object) -> dict[str, Any]:
    from kedge.cluster.memory import parse_memory  # late: few jobs say it

    return {field.name: parse_memory(_spell_number(value, "an amount such as 64G"))}


def _read_duration(field: JobField, value: object) -> dict[str, Any]:
    if hasattr(value, "hour") and not hasattr(value, "year"):  # TOML reads an unquoted 01:30:00 as a time of day
        value = str(value)
    return {field.name: parse_duration(_spell_number(value, "a duration such as 2h"))}


def _spell_number(value: object, wanted: str) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _NUMBERS:
        return str(value)
    if not isinstance(value, str):
        raise _refuse_type(value, wanted)
    return value


def _read_moment(field: JobField, value: object) -> dict[str, Any]:
    if getattr(value, "tzinfo", None) is not None:
        raise InvalidJob(
            "schedulers do not support time zones", hint="give the cluster's local time, such as 2030-01-31T08:00:00"
        )
    isoformat = getattr(value, "isoformat", None)
    return _read_line(field, isoformat() if isoformat else value)


def _read_words(field: JobField, value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = shlex.split(_check_text(value, one_line=False))
        except ValueError:
            raise InvalidJob(
                f"{shorten(value)} has an unclosed quote",
                hint='write it as a list of words: ["python", "train.py"]',
            ) from None
    if not isinstance(value, list | tuple):
        raise _refuse_type(value, "a list of words, or one text")
    return {field.name: tuple(_turn_to_text(word) for word in value)}


def _read_list(field: JobField, value: object) -> dict[str, Any]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        raise _refuse_type(value, "a list of texts")
    for item in listed:
        if not _check_text(item, one_line=True).strip():
            raise InvalidJob("it contains an empty text")
    return {field.name: tuple(listed)}


def _read_lines(field: JobField, value: object) -> dict[str, Any]:
    listed = value.strip("\n").split("\n") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        raise _refuse_type(value, "lines of shell: a list, or one text of several lines")
    return {field.name: tuple(_check_text(line, one_line=False) for line in listed)}


def _read_pairs(field: JobField, value: object) -> dict[str, Any]:
    if isinstance(value, list | tuple):
        value = dict(_split_pair(_check_text(pair, one_line=False)) for pair in value)
    if not isinstance(value, dict):
        raise _refuse_type(value, 'a table such as { OMP_NUM_THREADS = 8 }, or a list of "NAME=VALUE"')
    pairs = []
    for name, text in value.items():
        if not VARIABLE_NAME.fullmatch(name):
            raise InvalidJob(
                f"{shorten(name)} is not a variable name",
                context={"entry": name},
                hint="names consist of letters, digits and _, and do not begin with a digit",
            )
        try:
            pairs.append((name, _turn_to_text(text)))
        except InvalidJob as problem:
            raise InvalidJob(f"{name}: {problem.message}", context={"entry": name}, hint=problem.hint) from None
    return {field.name: tuple(pairs)}


def _split_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidJob(f"{shorten(text)} has no value", hint=f"write {name}=VALUE")
    return name, value


def _read_flag(field: JobField, value: object) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise InvalidJob(
            f"it must be true or false, not {name_type(value)}", hint="write true and false without quotes"
        )
    return {field.name: value}


def _read_array(field: JobField, value: object) -> dict[str, Any]:
    listed = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(index, bool) or not isinstance(index, int | str) for index in listed):
        raise _refuse_type(value, 'indices such as "0-9"')
    return {field.name: JobArray.parse(",".join(_turn_to_text(index) for index in listed))}


def _read_dependencies(field: JobField, value: object) -> dict[str, Any]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        raise _refuse_type(value, "a list of jobs")
    return {field.name: tuple(job for text in listed for job in parse_dependencies(_check_text(text, one_line=True)))}


KINDS: dict[str, Callable[[JobField, object], dict[str, Any]]] = {
    "text": _read_text,
    "line": _read_line,
    "choice": _read_choice,
    "choices": _read_choices,
    "count": _read_count,
    "gpus": _read_gpus,
    "memory": _read_memory,
    "duration": _read_duration,
    "moment": _read_moment,
    "words": _read_words,
    "list": _read_list,
    "lines": _read_lines,
    "pairs": _read_pairs,
    "yes or no": _read_flag,
    "array": _read_array,
    "dependencies": _read_dependencies,
}
