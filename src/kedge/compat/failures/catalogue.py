# SPDX-License-Identifier: BSD-3-Clause
"""All known failures in one order: what stands first explains what stands after it.

They are data, `data/failures.toml`, and a site may have more, in failures.toml beside its settings.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from kedge.base.frozen import JsonValue, frozen, list_defaults, list_names
from kedge.errors import TableProblem
from kedge.system.settings import site_file

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

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


# Frozen values from the tables of a TOML file: each error names the file, the entry and its key.

_LARGEST = 8 << 20  # bytes; larger files are something else
_WORDS = {
    "str": (str, "text in quotes, on one line"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "tuple[str, ...]": (list, "a list of texts, as in ['a', 'b']"),
}


def read_tables(path: Path) -> dict[str, Any]:
    """What a file of TOML holds; raises OSError where it cannot be read, TableProblem where it is something else."""
    import tomllib  # late: it costs a start 25 ms

    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise TableProblem(f"{path}: more than {_LARGEST >> 20} MiB is too large for a table")
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as problem:
        raise TableProblem(f"{path} is not TOML: {problem}", context={"file": str(path)}) from None


def make_value(kind: type[T], table: object, where: str, **given: object) -> T:
    """A value whose names are the keys of the table, those in `given` apart; `where` is the file and the entry."""
    if not isinstance(table, dict):
        raise TableProblem(f"{where}: it must be a table of keys")
    names = [name for name in list_names(kind) if name not in given]
    for key in table:
        if key not in names:
            raise TableProblem(f"{where}: unknown key '{key}'", hint=f"the keys are: {', '.join(names)}")
    missing = [name for name in names if name not in table and name not in list_defaults(kind)]
    if missing:
        raise TableProblem(f"{where}: '{missing[0]}' is missing")
    values = {key: _check(value, kind.__annotations__[key], f"{where}: {key}") for key, value in table.items()}
    return kind(**given, **values)


def _check(value: Any, annotation: str, where: str) -> object:
    wanted, words = _WORDS[annotation]
    is_good = type(value) is wanted  # true is an int for isinstance
    if isinstance(value, str):
        is_good = is_good and value.isprintable()
    elif isinstance(value, list):
        is_good = is_good and all(isinstance(each, str) for each in value)
    if not is_good:
        raise TableProblem(f"{where}: it must be {words}")
    return tuple(value) if wanted is list else value


# A known failure (its message, cause and remedy), and a clue: where a log has such a message.

# How a message relates to the failure; in a report they come in this order.
CAUSE = "cause"  # it says why
GENERAL = "general"  # the program says that it failed; why is its own affair
CONSEQUENCE = "consequence"  # something else failed before
NOTE = "note"  # programs go on, and may fail later because of it
LEVELS = (CAUSE, GENERAL, CONSEQUENCE, NOTE)

# How sure the explanation is.
CERTAIN = "certain"  # the message has this one meaning
LIKELY = "likely"  # it nearly always means this
POSSIBLE = "possible"  # there are other reasons for it
SURE = (CERTAIN, LIKELY, POSSIBLE)


@frozen
class Failure:
    """One message; `{1}` in cause and remedy stands for the pattern's first group. Its names are the table's keys."""

    subject: str  # memory
    name: str
    pattern: str  # found anywhere in a line, small and capital letters alike; may reach into the lines after it
    cause: str  # a part of a sentence, without a full stop
    remedy: str
    source: str  # where the message was read, or how it was made
    examples: tuple[str, ...]  # verbatim, as programs print them
    level: str = CAUSE
    sure: str = CERTAIN
    unless: str = ""  # a pattern: where the same lines match it, this is no failure
    is_late: bool = False  # whatever failed before it in the log brought it about
    least: int = 1  # how often it must occur
    missing: str = "unknown"  # what stands for a group that matched nothing
    is_exception: bool = False  # it stands for what ends a traceback and nothing else explains


@frozen
class Clue(JsonValue):
    """A line that explains a failure."""

    line: str  # as it was written, without control characters, labels of ranks and secrets
    cause: str
    remedy: str
    name: str = ""
    level: str = CAUSE
    sure: str = CERTAIN
    number: int = 0  # of the line in its file; from 1
    rank: str = ""  # as the launcher labelled the line; empty where it has no label
    ranks: int = 0  # how many ranks wrote it
    count: int = 1  # how often it occurs
    file: str = ""  # where several files were searched

    @property
    def is_failure(self) -> bool:
        """Whether a program failed; else it only said something worth knowing."""
        return self.level != NOTE

    @property
    def place(self) -> str:
        """`train.out:12`, or `line 12` where there is no file."""
        return f"{self.file}:{self.number}" if self.file else f"line {self.number}"
