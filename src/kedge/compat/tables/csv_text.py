# SPDX-License-Identifier: BSD-3-Clause
"""The text of a table: CSV with one line for each row. Each problem names file, line and column."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any

from kedge.base.frozen import frozen
from kedge.base.nearest import propose
from kedge.compat.tables.columns import TABLE_KINDS, CellProblem, TableKind
from kedge.errors import TableProblem

LARGEST = 8 << 20  # bytes; larger files are something else
_LONGEST_CELL = 8192
_MOST_PROBLEMS = 100  # who has more wants to see the first ones


@frozen
class ParsedTable:
    """What could be read: rows with their line, and what is wrong with the others."""

    kind: TableKind
    rows: tuple[tuple[int, Any], ...]
    problems: tuple[TableProblem, ...]


def parse_table(data: bytes, where: str, kind: TableKind | None = None, *, whole: bool = True) -> ParsedTable:
    """Read the bytes of a file called `where`; raises TableProblem where nothing in it can be read.

    Without `kind` the names of the columns say which table it is. Columns that nobody needs may be missing then, and
    where `whole` is False: an older kedge, which had fewer of them, may have written the file.
    """
    lines = _Lines(_decode(data, where), where)
    header = next(lines, None)
    if header is None:
        raise _problem_at(where, 1, "", "the file is empty", "the first line names the columns")
    table_kind = kind or _find_kind(header[1], where)
    columns = _check_header(header[1], table_kind, where, whole=whole and kind is not None)
    reading = _Reading(table_kind, columns, where)
    for line, cells in lines:
        reading.add(line, cells)
    return ParsedTable(table_kind, tuple(reading.rows), (*reading.problems, *lines.problems))


class GroupedTable:
    """The lines of a table, whose cells are looked at when their group is asked for: most commands ask for one of them.

    A group has the same text in the first column of the key, such as the image. Raises TableProblem for a file that is
    no such table, at once, and for a cell that makes no sense, when it is read.
    """

    def __init__(self, data: bytes, where: str, kind: TableKind) -> None:
        self._kind, self._where = kind, where
        lines = _Lines(_decode(data, where), where)
        header = next(lines, (1, []))
        self._columns = _check_header(header[1], kind, where, whole=True)
        place = list(self._columns).index(kind.key[0])
        self._lines = list(lines)
        self._groups: dict[str, list[tuple[int, list[str]]]] = {}
        reading = _Reading(kind, self._columns, where)
        for line, cells in self._lines:
            reading.check_count(line, cells)
            self._groups.setdefault(cells[place] if place < len(cells) else "", []).append((line, cells))
        for problem in (*reading.problems, *lines.problems):
            raise problem

    @property
    def names(self) -> tuple[str, ...]:
        """The groups, in the order of the file."""
        return tuple(self._groups)

    def read_group(self, name: str) -> tuple[Any, ...]:
        """The rows of one group."""
        return self._read(self._groups.get(name, []))

    def read_all(self) -> tuple[Any, ...]:
        """All rows, in the order of the file."""
        return self._read(self._lines)

    def _read(self, lines: list[tuple[int, list[str]]]) -> tuple[Any, ...]:
        reading = _Reading(self._kind, self._columns, self._where)
        for line, cells in lines:
            reading.add(line, cells)
        for problem in reading.problems:
            raise problem
        return tuple(row for _, row in reading.rows)


def _problem_at(where: str, line: int, column: str, message: str, hint: str) -> TableProblem:
    """The error that names the place."""
    place = f"{where} line {line}" + (f", {column}" if column else "")
    context = {"file": where, "line": str(line), **({"column": column} if column else {})}
    return TableProblem(f"{place}: {message}", context=context, hint=hint)


class _Lines(Iterator[tuple[int, list[str]]]):
    """The rows of a CSV file with their line numbers; ends at the first line that is no CSV."""

    def __init__(self, text: str, where: str) -> None:
        self.problems: list[TableProblem] = []
        self._where = where
        self._reader = csv.reader(text.splitlines(keepends=True), strict=True)

    def __next__(self) -> tuple[int, list[str]]:
        while True:
            before = self._reader.line_num
            try:
                cells = next(self._reader)
            except csv.Error as problem:
                hint = "a cell with a comma or quotes in it stands in double quotes, on one line"
                self.problems.append(_problem_at(self._where, before + 1, "", f"this is no CSV: {problem}", hint))
                raise StopIteration from None
            if cells:
                return before + 1, cells


class _Reading:
    """The rows so far."""

    def __init__(self, kind: TableKind, columns: Sequence[str], where: str) -> None:
        self.kind = kind
        self.rows: list[tuple[int, Any]] = []
        self.problems: list[TableProblem] = []
        self._columns = columns
        self._where = where
        self._empty = dict.fromkeys(kind.columns, "")
        self._lines: dict[tuple[str, ...], int] = {}

    def add(self, line: int, cells: list[str]) -> None:
        """Read one row, or note what is wrong with it."""
        if len(self.problems) >= _MOST_PROBLEMS:
            return
        if not self.check_count(line, cells):
            return
        try:
            self._refuse_odd(cells)
            named = {**self._empty, **dict(zip(self._columns, cells, strict=True))}
            key = tuple(named[column] for column in self.kind.key)
            made = self.kind.make(named)
            if key in self._lines:
                message = f"{' '.join(key)} is there already, in line {self._lines[key]}"
                raise CellProblem(self.kind.key[-1], message, "make one row of the two")
            self._lines[key] = line
        except CellProblem as problem:
            self.problems.append(_problem_at(self._where, line, problem.column, problem.message, problem.hint))
            return
        self.rows.append((line, made))

    def check_count(self, line: int, cells: list[str]) -> bool:
        """Whether a row has a cell for each column; notes the problem where it has not."""
        if len(cells) == len(self._columns):
            return True
        message = f"there are {len(cells)} cells, and {len(self._columns)} columns"
        hint = "count the commas; a cell with a comma in it stands in double quotes"
        self.problems.append(_problem_at(self._where, line, "", message, hint))
        return False

    def _refuse_odd(self, cells: list[str]) -> None:
        text = "".join(cells)
        if len(text) > _LONGEST_CELL or not text.isprintable():  # one look at all of a row: there are many
            for column, cell in zip(self._columns, cells, strict=True):
                if len(cell) > _LONGEST_CELL:
                    raise CellProblem(column, f"the cell has {len(cell)} characters", "make it shorter")
                if not cell.isprintable():
                    raise CellProblem(column, "there are line breaks or control characters in it", "write plain text")


def _decode(data: bytes, where: str) -> str:
    if len(data) > LARGEST:
        message = f"more than {LARGEST >> 20} MiB is too large for a table"
        raise _problem_at(where, 1, "", message, "is it the right file?")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise _problem_at(where, line, "", "there is a zero byte in it, so it is no text", "is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise _problem_at(where, line, "", "this is not UTF-8", "save the file as UTF-8") from None


def _find_kind(header: Sequence[str], where: str) -> TableKind:
    for kind in TABLE_KINDS:
        if set(kind.key) <= set(header) and (kind.key[0] != "cuda_toolkit" or "image" not in header):
            return kind
    keys = "; ".join(f"{','.join(kind.key)},…,source for {kind.file}" for kind in TABLE_KINDS)
    message = "the first line does not name the columns of a table"
    raise _problem_at(where, 1, "", message, f"it begins with one of: {keys}")


def _check_header(header: Sequence[str], kind: TableKind, where: str, *, whole: bool) -> Sequence[str]:
    for column in header:
        if column not in kind.columns:
            hint = propose(column, kind.columns) or f"the columns are {', '.join(kind.columns)}"
            raise _problem_at(where, 1, column[:80], f"{kind.file} has no such column", hint)
        if header.count(column) > 1:
            raise _problem_at(where, 1, column, "the column is there twice", "leave one of them out")
    needed = kind.columns if whole else (*kind.key, "source")
    for column in needed:
        if column not in header:
            raise _problem_at(where, 1, column, "the column is missing", f"the columns are {', '.join(kind.columns)}")
    return header
