# SPDX-License-Identifier: BSD-3-Clause
"""The tables of CUDA releases, GPUs and NGC images: those that come with kedge, and what the user's kedge learned.

Shipped figures are never replaced: what was learned fills the fields that they leave empty. A shipped table that is
damaged is an error; a learned one that is damaged is a problem to warn about, and the rows that can be read count.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import frozen, list_names, replace
from kedge.base.nearest import propose
from kedge.base.versions import order
from kedge.compat.tables.columns import CUDA, GPUS, RELEASES, TABLE_KINDS, CellProblem, TableKind, split_pattern
from kedge.compat.tables.rows import CudaRelease, GpuModel, NgcRelease
from kedge.errors import TableProblem
from kedge.system.private_files import read_own_file

SHIPPED = Path(__file__).parents[2] / "data"
_SCHEMES = ("docker://", "dockerd://", "oras://")
_MOST_PROBLEMS = 5  # of learned rows: each becomes a warning
_HUB = ("docker.io/", "index.docker.io/", "registry-1.docker.io/", "")
_NVIDIA = "nvcr.io/nvidia/"


class Tables:
    """All rows, and how to find one."""

    def __init__(
        self,
        cuda: Iterable[CudaRelease],
        gpus: Iterable[GpuModel],
        releases: Iterable[NgcRelease] | GroupedTable,
        *,
        learned: Iterable[NgcRelease] = (),
        problems: Iterable[TableProblem] = (),
    ) -> None:
        self.cuda = tuple(cuda)
        self.gpus = tuple(gpus)
        self.learned = tuple(learned)
        self.problems = tuple(problems)  # of the learned rows
        self._given = releases if isinstance(releases, GroupedTable) else tuple(releases)
        self._learned = {(row.image, row.tag): row for row in self.learned}

    @functools.cached_property
    def shipped(self) -> tuple[NgcRelease, ...]:
        """The rows of images that come with kedge."""
        return self._given.read_all() if isinstance(self._given, GroupedTable) else self._given

    @functools.cached_property
    def releases(self) -> tuple[NgcRelease, ...]:
        """The rows of images: shipped ones with what was learned about them, then those that are learned only."""
        rows = [merge_rows(row, self._learned.get((row.image, row.tag))) for row in self.shipped]
        return (*rows, *(row for row in self.learned if self._find_shipped(row.image, row.tag) is None))

    @functools.cached_property
    def images(self) -> tuple[str, ...]:
        """The repositories that have rows."""
        given = self._given.names if isinstance(self._given, GroupedTable) else (row.image for row in self._given)
        return tuple(dict.fromkeys((*given, *(row.image for row in self.learned))))

    def find_release(self, image: str, tag: str) -> NgcRelease | None:
        """The row of one tag; a row that stands for several is narrowed to what is true of this one."""
        name = normalize_image(image)
        shipped, learned = self._find_shipped(name, tag), self._learned.get((name, tag))
        return merge_rows(shipped, learned) if shipped is not None else learned

    def list_releases(self, image: str) -> tuple[NgcRelease, ...]:
        """A row for each tag of a repository that is known, newest first; patterns are written out."""
        return self._list_releases(normalize_image(image))

    def find_cuda(self, version: str) -> CudaRelease | None:
        """The row of a toolkit: of 12.3.2 for `12.3.2.001`; else the newest of that minor, which says so."""
        wanted = order(version)
        if len(wanted) < 2:
            return None
        near = [(order(row.version), row) for row in self.list_cuda(wanted[0], wanted[1])]
        exact = next((row for fields, row in near if fields == wanted[: len(fields)]), None)
        if exact is not None or not near:
            return exact
        return replace(max(near, key=lambda pair: pair[0])[1], stands_for=version)

    def list_cuda(self, major: int, minor: int) -> tuple[CudaRelease, ...]:
        """The rows of one minor release."""
        return self._cuda_by_minor.get((major, minor), ())

    @functools.cached_property
    def _cuda_by_minor(self) -> dict[tuple[int, ...], tuple[CudaRelease, ...]]:
        found: dict[tuple[int, ...], tuple[CudaRelease, ...]] = {}
        for row in self.cuda:
            minor = order(row.version)[:2]
            found[minor] = (*found.get(minor, ()), row)
        return found

    def _find_shipped(self, image: str, tag: str) -> NgcRelease | None:
        exact, patterns = self._index(image)
        if tag in exact:
            return exact[tag]
        for row in patterns.get(tag.partition("-")[0] + "-", ()):
            for name, flavour in _list_flavours(row.tag):
                if name == tag:
                    return _narrow_row(row, tag, flavour)
        return None

    @functools.cache  # noqa: B019 - tables live as long as the process
    def _list_shipped(self, image: str) -> tuple[NgcRelease, ...]:
        if isinstance(self._given, GroupedTable):
            return self._given.read_group(image)
        return tuple(row for row in self._given if row.image == image)

    @functools.cache  # noqa: B019 - as above
    def _index(self, image: str) -> tuple[dict[str, NgcRelease], dict[str, list[NgcRelease]]]:
        """The shipped rows of an image: those of one tag by it, and patterns by what stands before their braces."""
        patterns: dict[str, list[NgcRelease]] = {}
        for row in self._list_shipped(image):
            if "{" in row.tag:
                patterns.setdefault(row.tag.partition("{")[0], []).append(row)
        return {row.tag: row for row in self._list_shipped(image) if "{" not in row.tag}, patterns

    @functools.cache  # noqa: B019 - as above
    def _list_releases(self, image: str) -> tuple[NgcRelease, ...]:
        rows = []
        for row in self._list_shipped(image):
            if "{" in row.tag:
                tags = [_narrow_row(row, name, flavour) for name, flavour in _list_real_names(row.tag)]
                rows += [merge_rows(each, self._learned.get((image, each.tag))) for each in tags]
            else:
                rows.append(merge_rows(row, self._learned.get((image, row.tag))))
        rows += [row for row in self.learned if row.image == image and self._find_shipped(image, row.tag) is None]
        return tuple(sorted(rows, key=lambda row: (order(row.tag), row.tag), reverse=True))


def load_tables(learned: Path | None = None) -> Tables:
    """The shipped tables, and the rows of a file that `kedge data update` wrote; a file that is not there is empty."""
    if learned is None:
        return _load(None, 0, 0)
    try:
        state = learned.stat()
    except OSError:
        return _load(None, 0, 0)
    return _load(learned, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=4)
def _load(learned: Path | None, changed: int, size: int) -> Tables:
    """Read it all; a file that has changed is another one."""
    del changed, size
    rows, problems = read_learned(learned) if learned else ((), ())
    cuda, gpus, releases = _load_shipped(SHIPPED)
    return Tables(cuda, gpus, releases, learned=rows, problems=problems)


@functools.lru_cache(maxsize=1)
def _load_shipped(folder: Path) -> tuple[tuple[CudaRelease, ...], tuple[GpuModel, ...], GroupedTable]:
    cuda, gpus, releases = (read_shipped(kind, folder) for kind in (CUDA, GPUS, RELEASES))
    return cuda.read_all(), gpus.read_all(), releases


def read_shipped(kind: TableKind, folder: Path = SHIPPED) -> GroupedTable:
    """A table that comes with kedge; what is wrong with it raises TableProblem."""
    path = folder / kind.file
    try:
        data = path.read_bytes()
    except OSError as problem:
        hint = "kedge is not installed as a whole: install it again"
        raise TableProblem(f"{path}: {problem.strerror}", context={"file": str(path)}, hint=hint) from problem
    return GroupedTable(data, str(path), kind)


def read_learned(path: Path) -> tuple[tuple[NgcRelease, ...], tuple[TableProblem, ...]]:
    """The rows of a learned file that can be read, and what is wrong with the others; nothing is raised."""
    try:
        table = parse_table(read_own_file(path, LARGEST + 1), str(path), RELEASES, whole=False)
    except FileNotFoundError:
        return (), ()
    except OSError as problem:
        hint = "learned rows are left out; 'kedge data update' reads them again"
        return (), (TableProblem(f"{path}: {problem.strerror}", context={"file": str(path)}, hint=hint),)
    except TableProblem as problem:
        return (), (problem,)
    return tuple(row for _, row in table.rows), table.problems[:_MOST_PROBLEMS]


def check_file(path: Path, kind: TableKind | None = None) -> ParsedTable:
    """Read a file of rows that somebody wants to contribute; OSError and TableProblem are raised."""
    with path.open("rb") as file:
        return parse_table(file.read(LARGEST + 1), str(path), kind)


def normalize_image(text: str) -> str:
    """`nvcr.io/nvidia/pytorch` of `docker://nvcr.io/nvidia/pytorch:24.03-py3`, `nvcr.io#nvidia/pytorch`, `nvidia/cuda`.

    NVIDIA publishes the images of `cuda` on Docker Hub, too, under the same tags.
    """
    name = text.strip()
    for scheme in _SCHEMES:
        name = name.removeprefix(scheme)
    name = name.replace("#", "/", 1).partition("@")[0]
    folder, slash, last = name.rpartition("/")
    name = (folder + slash + last.partition(":")[0]).lower()
    for prefix in _HUB:
        if name == f"{prefix}nvidia/cuda" or (not prefix and name.startswith("nvidia/")):
            return _NVIDIA + name.removeprefix(prefix).removeprefix("nvidia/")
    return name


def _list_flavours(pattern: str) -> list[tuple[str, str]]:
    """Return all names of the tags that a pattern stands for, and the flavour each has.

    The table writes flavours as NVIDIA's folders are called, `devel-cudnn8`; the tags say `cudnn8-devel`. Both count.
    """
    split = split_pattern(pattern)
    if split is None:
        return [(pattern, "")]
    before, flavours, after = split
    names = [(f"{before}{flavour}{after}", flavour) for flavour in flavours]
    turned = [(f"{before}{_turn_flavour(flavour)}{after}", flavour) for flavour in flavours if "-" in flavour]
    return names + turned


def _turn_flavour(flavour: str) -> str:
    """`cudnn8-devel` of `devel-cudnn8`."""
    first, dash, last = flavour.partition("-")
    return f"{last}-{first}" if dash else flavour


def _list_real_names(pattern: str) -> list[tuple[str, str]]:
    """Each tag once, as registries have it."""
    before, flavours, after = split_pattern(pattern) or (pattern, (), "")
    return [(f"{before}{_turn_flavour(flavour)}{after}", flavour) for flavour in flavours]


def _narrow_row(row: NgcRelease, tag: str, flavour: str) -> NgcRelease:
    """Return what a row for several tags says about one of them: images without cuDNN or NCCL have no version of it."""
    base, _, extra = flavour.partition("-")
    cudnn = [version for version in row.cudnn.split(";") if version] if extra.startswith("cudnn") else []
    wanted = extra.removeprefix("cudnn")
    cudnn = [version for version in cudnn if not wanted or version.split(".")[0] == wanted]
    return replace(
        row,
        tag=tag,
        cudnn=" or ".join(cudnn),
        nccl="" if base == "base" else " or ".join(row.nccl.split(";")),
    )


def merge_rows(shipped: NgcRelease, learned: NgcRelease | None) -> NgcRelease:
    """A row with its empty fields filled from another one of the same tag; figures that are there stay."""
    if learned is None:
        return shipped
    changes: dict[str, object] = {}
    for name in list_names(NgcRelease):
        value = getattr(learned, name)
        if value and not getattr(shipped, name):
            changes[name] = value
    capabilities = _join_capabilities(shipped, learned)
    if capabilities != shipped.capabilities:
        changes["capabilities"] = capabilities
    if not changes:
        return shipped
    return replace(shipped, **changes, source=f"{shipped.source}; {learned.source}")


def _join_capabilities(shipped: NgcRelease, learned: NgcRelease) -> str:
    """Lists by architecture: one that is learned stands beside what notes state, which is no list of the image."""
    parts = [part for part in shipped.capabilities.split("; ") if part]
    known = {_architecture_of(part) for part in parts}
    new = [part for part in learned.capabilities.split("; ") if part and _architecture_of(part) not in known]
    return "; ".join(parts + new)


def _architecture_of(part: str) -> str:
    if part.endswith("(stated)"):
        return "stated"
    name, colon, _ = part.partition(": ")
    return name if colon else "amd64"


# The text of a table: CSV with one line for each row. Each problem names file, line and column.

LARGEST = 8 << 20  # bytes; larger files are something else
_LONGEST_CELL = 8192
_CSV_TEXT_MOST_PROBLEMS = 100  # who has more wants to see the first ones


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
        if len(self.problems) >= _CSV_TEXT_MOST_PROBLEMS:
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
