# SPDX-License-Identifier: BSD-3-Clause
"""The tables that verdicts rest on: what they hold, where it is from, and whether rows that somebody wrote are good."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import JsonValue, frozen, list_names
from kedge.base.nearest import propose
from kedge.base.versions import order
from kedge.compat.tables.columns import CUDA, GPUS, RELEASES, TABLE_KINDS, TableKind
from kedge.compat.tables.gpu_names import find_gpu, find_models
from kedge.compat.tables.load import SHIPPED, Tables, check_file, load_tables, normalize_image
from kedge.compat.tables.rows import NgcRelease
from kedge.errors import TableProblem, UnknownGpu, UsageError
from kedge.system.files import explained
from kedge.system.settings import xdg_directory

_NO_FIGURES = ("source", "notes", "same_month", "stands_for")
_KEYS = {"cuda": ("version",), "gpus": ("name",), "releases": ("image", "tag")}


def learned_path(environ: Mapping[str, str]) -> Path:
    """Where rows that were learned are kept: in the home, which login and compute nodes share."""
    return xdg_directory(environ, "XDG_DATA_HOME", ".local/share") / "tables" / RELEASES.file


@frozen
class _TableSummary:
    """One table, or the rows of one image."""

    name: str
    rows: int
    newest: str  # its newest release; empty where rows have no order
    path: str
    learned: int = 0  # rows that were learned, or have fields that were


@frozen
class _DataSummary:
    """What there is."""

    tables: tuple[_TableSummary, ...]
    images: tuple[_TableSummary, ...]
    learned: str  # path of the learned rows
    learned_rows: int
    learned_when: str  # empty: nothing was learned yet
    problems: tuple[str, ...] = ()


@frozen
class Section(JsonValue):
    """Rows of one table that answer a question; `rows` are values of compat.rows."""

    table: str
    title: str
    rows: tuple[Any, ...]


@frozen
class _CheckedFile:
    """What a file of rows is worth."""

    path: str
    table: str
    rows: int
    new: int  # rows for which the tables have none yet
    problems: tuple[TableProblem, ...]
    notes: tuple[str, ...]  # rows that say what a shipped one says, too


def summarize_tables(environ: Mapping[str, str]) -> _DataSummary:
    """How many rows there are, how new, and what was learned when."""
    path = learned_path(environ)
    tables = load_tables(path)
    newest = {CUDA.name: _newest(row.version for row in tables.cuda), GPUS.name: ""}
    counts = {CUDA.name: len(tables.cuda), GPUS.name: len(tables.gpus), RELEASES.name: len(tables.releases)}
    learned = {RELEASES.name: len(tables.learned)}
    listed = [
        _TableSummary(
            kind.name, counts[kind.name], newest.get(kind.name, ""), str(SHIPPED / kind.file), learned.get(kind.name, 0)
        )
        for kind in TABLE_KINDS
    ]
    return _DataSummary(
        tables=tuple(listed),
        images=tuple(_summarize_image(image, tables) for image in tables.images),
        learned=str(path),
        learned_rows=len(tables.learned),
        learned_when=_tell_when(path),
        problems=tuple(problem.message for problem in tables.problems),
    )


def _summarize_image(image: str, tables: Tables) -> _TableSummary:
    rows = [row for row in tables.releases if row.image == image]
    learned = sum(row.image == image for row in tables.learned)
    newest = _newest(row.tag for row in rows)
    return _TableSummary(image, len(rows), newest, "", learned)


def _newest(names: Iterable[str]) -> str:
    return max(names, key=lambda name: (order(name), name), default="")


def _tell_when(path: Path) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))
    except OSError:
        return ""


def show_rows(what: str, tables: Tables) -> list[Section]:
    """The rows of a table, an image, a tag, a GPU or a CUDA version, each with its source.

    `9.0` is a compute capability and a CUDA version: both are shown.
    """
    word = what.strip()
    for kind, rows in ((CUDA, tables.cuda), (GPUS, tables.gpus), (RELEASES, tables.releases)):
        if word in (kind.name, kind.file):
            return [Section(kind.name, f"all of {kind.file}", rows)]
    sections = [*_show_cuda(word, tables), *_show_image(word, tables)]
    if (
        "/" not in word
        and (":" not in word or word.startswith("gpu:"))
        and not any(s.table == "releases" for s in sections)
    ):
        sections += _show_gpus(word, tables, is_last=not sections)
    if not sections:
        raise UsageError(f"the tables have nothing about '{word}'", hint=_propose(word, tables))
    return sections


def _show_cuda(word: str, tables: Tables) -> list[Section]:
    wanted = order(word.lower().removeprefix("cuda").strip(" -"))
    rows = tuple(row for row in tables.cuda if wanted and order(row.version)[: len(wanted)] == wanted)
    if not rows and len(wanted) > 2:
        near = tables.find_cuda(".".join(str(field) for field in wanted))
        rows = (near,) if near else ()
    return [Section(CUDA.name, f"CUDA {'.'.join(str(field) for field in wanted)}", rows)] if rows else []


def _show_image(word: str, tables: Tables) -> list[Section]:
    name, _, tag = word.removeprefix("docker://").rpartition(":")
    if not name or "/" in tag:
        name, tag = word, ""
    name = normalize_image(name)
    images = [image for image in tables.images if name == image or ("/" not in name and image.endswith(f"/{name}"))]
    rows: list[NgcRelease] = []
    for image in images:
        release = tables.find_release(image, tag) if tag else None
        if tag and release is not None:
            rows.append(release)
        elif not tag:
            rows += [row for row in tables.releases if row.image == image]
    if tag and images and not rows:
        known = [row.tag for image in images for row in tables.list_releases(image)]
        begun = next((name for name in known if name.startswith(tag)), "")
        near = f"did you mean '{begun}'?" if begun else propose(tag, known)
        hint = near or f"'kedge data show {images[0]}' lists those that are known; 'kedge explain' asks the registry"
        raise UsageError(f"the tables have no tag '{tag}' of {images[0]}", hint=hint)
    return [Section(RELEASES.name, word, tuple(rows))] if rows else []


def _show_gpus(word: str, tables: Tables, *, is_last: bool) -> list[Section]:
    try:
        gpu = find_gpu(word, tables)
    except UnknownGpu:
        rows = tuple(find_models(word, tables))
        if not rows and is_last and any(letter.isdigit() for letter in word) and word[:1].isalpha():
            raise
        return [Section(GPUS.name, word, rows)] if rows else []
    rows = tuple(find_models(word.removeprefix("gpu:"), tables)) or tuple(
        row for row in tables.gpus if row.capability == gpu.capability and gpu.capability
    )
    return [Section(GPUS.name, gpu.name, rows)] if rows else []


def _propose(word: str, tables: Tables) -> str:
    known = [image.rpartition("/")[2] for image in tables.images] + [kind.name for kind in TABLE_KINDS]
    return propose(word, known) or "name a table (cuda, gpus, releases), an image, a GPU or a CUDA version"


def check_rows(path: Path) -> _CheckedFile:
    """Whether rows that somebody wants to contribute are good: each by itself, and beside those that are shipped."""
    tables = load_tables()
    with explained(path):
        table = check_file(path)
    shipped: Sequence[Any] = {CUDA.name: tables.cuda, GPUS.name: tables.gpus, RELEASES.name: tables.shipped}[
        table.kind.name
    ]
    known = {_key_of(row, table.kind): row for row in shipped}
    notes, new = [], 0
    for line, row in table.rows:
        there = known.get(_key_of(row, table.kind))
        if there is None and table.kind is RELEASES:
            there = tables.find_release(row.image, row.tag)  # by a pattern
        new += there is None
        notes += [f"line {line}: {text}" for text in _compare(row, there)] if there is not None else []
    return _CheckedFile(
        path=str(path),
        table=table.kind.name,
        rows=len(table.rows),
        new=new,
        problems=table.problems,
        notes=tuple(notes),
    )


def _key_of(row: Any, kind: TableKind) -> tuple[str, ...]:
    return tuple(getattr(row, name) for name in _KEYS[kind.name])


def _compare(row: Any, there: Any) -> list[str]:
    """The figures in which two rows with one key differ; where both are there, somebody has to decide."""
    differences = []
    for name in list_names(type(row)):
        ours, theirs = getattr(row, name), getattr(there, name)
        if name not in _NO_FIGURES and ours and theirs and ours != theirs:
            differences.append(
                f"{name} is {_tell(ours)} in this file, but {_tell(theirs)} in the shipped table ({there.source})"
            )
    return differences


def _tell(value: object) -> str:
    return ";".join(str(item) for item in value) if isinstance(value, tuple) else f"{value}"
