# SPDX-License-Identifier: BSD-3-Clause
"""All known failures in one order: what stands first explains what stands after it.

They are data, `data/failures.toml`, and a site may have more, in failures.toml beside its settings.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from kedge.base.typed_table import make_value, read_tables
from kedge.compat.failures.failure import LEVELS, SURE, Failure
from kedge.errors import TableProblem
from kedge.system.settings import site_file

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

SHIPPED = Path(__file__).parents[2] / "data" / "failures.toml"


class Catalogue:
    """The failures of the site and of kedge, and the words that a line needs to be compared with them."""

    def __init__(self, failures: tuple[Failure, ...], marks: tuple[str, ...], problem: str = "") -> None:
        self.failures = failures
        self.marks = tuple(mark.encode() for mark in marks)
        self.problem = problem  # what is wrong with the site's file, which is left out then
        self.places = {failure.name: place for place, failure in enumerate(failures)}


def load_catalogue() -> Catalogue:
    """The failures that kedge knows, behind those of the site; the first call reads the files."""
    return _load(site_file(os.environ).with_name("failures.toml"))


def find_site_problem() -> str:
    """What is wrong with the site's file, if a search has read it: for callers that warn once, when all is searched."""
    return load_catalogue().problem if _load.cache_info().currsize else ""


@functools.lru_cache(maxsize=4)
def _load(site: Path) -> Catalogue:
    shipped, marks = read_failures(SHIPPED)
    try:
        own, own_marks = _read_site(site, marks)
    except FileNotFoundError:
        return Catalogue(shipped, marks)
    except (TableProblem, OSError) as problem:
        reason = problem.message if isinstance(problem, TableProblem) else f"{site}: {problem.strerror}"
        return Catalogue(shipped, marks, f"{reason}; kedge ignores this file")
    names = {failure.name for failure in own}
    return Catalogue((*own, *(failure for failure in shipped if failure.name not in names)), (*marks, *own_marks))


def read_failures(path: Path) -> tuple[tuple[Failure, ...], tuple[str, ...]]:
    """The failures of a file and its marks; raises TableProblem that names the file and the entry."""
    subjects = read_tables(path)
    marks = subjects.pop("marks", [])
    if not isinstance(marks, list) or not all(isinstance(mark, str) and mark == mark.lower() != "" for mark in marks):
        raise TableProblem(f"{path}: marks: it must be a list of texts in small letters")
    failures = []
    for subject, entries in subjects.items():
        if not isinstance(entries, dict):
            raise TableProblem(f"{path}: {subject}: failures stand in tables such as [{subject}.NAME]")
        failures += [_make(subject, name, table, f"{path}: [{subject}.{name}]") for name, table in entries.items()]
    return tuple(failures), tuple(marks)


def _make(subject: str, name: str, table: Any, where: str) -> Failure:
    pattern = table.get("pattern") if isinstance(table, dict) else None
    if isinstance(pattern, list) and all(isinstance(each, str) for each in pattern):
        table = {**table, "pattern": "|".join(pattern)}
    if not where.isprintable():  # names are shown as they are
        raise TableProblem(f"{where!r}: names must be printable")
    failure = make_value(Failure, table, where, subject=subject, name=name)
    for key, value, words in (("level", failure.level, LEVELS), ("sure", failure.sure, SURE)):
        if value not in words:
            raise TableProblem(f"{where}: {key}: it must be one of {', '.join(words)}")
    return failure


def _read_site(path: Path, marks: tuple[str, ...]) -> tuple[tuple[Failure, ...], tuple[str, ...]]:
    """A site's file; its patterns are tried at once, as no test of ours has done so."""
    failures, own_marks = read_failures(path)
    for failure in failures:
        where = f"{path}: [{failure.subject}.{failure.name}]"
        try:
            pattern = re.compile(failure.pattern, re.IGNORECASE | re.MULTILINE)
            re.compile(failure.unless)
        except re.error as problem:
            raise TableProblem(f"{where}: pattern: {problem}") from None
        for example in failure.examples:
            if not pattern.search(example):
                raise TableProblem(f"{where}: the pattern does not match the example {example!r}")
            if not any(mark in example.lower() for mark in (*marks, *own_marks)):
                raise TableProblem(f"{where}: no word of 'marks' is in {example!r}: add one, as in marks = ['word']")
    return failures, own_marks
