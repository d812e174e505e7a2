# SPDX-License-Identifier: BSD-3-Clause
"""The options of `kedge submit` and `kedge alloc` that describe a job, made from the table of its fields.

They override the file; lists add to it. An empty value removes that of the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kedge.cluster.job import Job
from kedge.cluster.job_fields import BY_NAME, FIELDS, GROUPS, JobField
from kedge.cluster.job_rules import find_problems
from kedge.cluster.job_values import change_job, read_value
from kedge.errors import InvalidJob

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

_PREFIX = "described_"  # `runtime` and `job_directory` are names of settings, too


class _Keep(argparse.Action):
    """Keeps every value with the flag as the user wrote it, so that errors can name it."""

    takes_dashes = False  # the parser asks whether the next word is the value even if it begins with a dash

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        del parser
        if self.nargs == 0:
            values = self.const.get(option_string) if self.const else not str(option_string).startswith("--no-")
        kept = getattr(namespace, self.dest, None) or []
        setattr(namespace, self.dest, [*kept, (str(option_string), values)])


class _Shown(tuple[str, ...]):
    """Choices for completion only: `read_value` refuses other values and names the flag."""

    __slots__ = ()

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str)


def add_job_options(parser: argparse.ArgumentParser, *, without: Sequence[str] = ()) -> None:
    """Add the flags of every field, in groups; `without` names fields that a verb does not take."""
    for group, title in GROUPS.items():
        options = parser.add_argument_group(title)
        for field in FIELDS:
            if field.group == group and field.flags and field.name not in without:
                _add_field(options, field)


def _add_field(options: Any, field: JobField) -> None:
    named: dict[str, Any] = {"dest": _PREFIX + field.name, "action": _Keep, "default": None}
    text = field.help.replace("%", "%%")
    if field.kind == "yes or no":
        options.add_argument(*field.flags, f"--no-{field.flag[2:]}", nargs=0, help=text, **named)
        return
    action = options.add_argument(
        *field.flags,
        metavar=field.metavar,
        help=text,
        choices=_Shown(field.choices) if field.kind == "choice" else None,
        **named,
    )
    action.takes_dashes = field.takes_dashes
    for flag, value in field.constants:
        options.add_argument(flag, nargs=0, const={flag: value}, help=f"the same as {field.flag} {value}", **named)


def read_job_options(arguments: argparse.Namespace, base: Job, *, needs_command: bool = True) -> Job:
    """The job with the values of the flags; InvalidJob names the flag, or the key of the file."""
    changes: dict[str, Any] = {}
    used: dict[str, str] = {}
    for field in FIELDS:
        given: list[tuple[str, Any]] = getattr(arguments, _PREFIX + field.name, None) or []
        if not given:
            continue
        used[field.name] = given[-1][0]
        values = _read_field(field, given)
        # an explicit flag beats what another implies, as --gpus a100:4 implies the type
        changes = {**values, **changes, field.name: values[field.name]}
    job = change_job(base, changes)
    for problem in find_problems(job, needs_command=needs_command):
        field = BY_NAME[problem.field]
        where = used.get(field.name) or field.flag or field.key
        context = {"flag": where} if where.startswith("-") else {"key": where}
        raise InvalidJob(f"{where}: {problem.message}", context=context, hint=problem.hint)
    return job


def list_given(arguments: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """The flags of these fields and their values, as they were typed, for another command line."""
    words: list[str] = []
    for name in names:
        for flag, value in getattr(arguments, _PREFIX + name, None) or []:
            words += [flag, value] if isinstance(value, str) and flag not in dict(BY_NAME[name].constants) else [flag]
    return words


def _read_field(field: JobField, given: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The value of a field: that of its last flag, or of all together if it is a list."""
    if field.constants and len({value for _, value in given}) > 1:
        flags = " and ".join(dict.fromkeys(flag for flag, _ in given))
        raise InvalidJob(f"{flags} contradict each other", context={"flag": given[-1][0]}, hint="give one of them")
    if not field.adds:
        return _read_one(field, *given[-1])
    lists = [_read_one(field, flag, [value])[field.name] for flag, value in given]
    return {field.name: tuple(value for values in lists for value in values)}


def _read_one(field: JobField, flag: str, value: object) -> dict[str, Any]:
    try:
        return read_value(field, value)
    except InvalidJob as problem:
        raise InvalidJob(f"{flag}: {problem.message}", context={"flag": flag}, hint=problem.hint) from None
