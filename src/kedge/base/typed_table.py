# SPDX-License-Identifier: BSD-3-Clause
"""Frozen values from the tables of a TOML file: each error names the file, the entry and its key."""

from __future__ import annotations

from pathlib import Path

from kedge.base.frozen import list_defaults, list_names
from kedge.errors import TableProblem

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

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
