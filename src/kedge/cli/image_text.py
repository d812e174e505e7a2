# SPDX-License-Identifier: BSD-3-Clause
"""Differences and sizes of images as people read them on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.counting import count_things
from kedge.base.size import format_size

if TYPE_CHECKING:
    from kedge.answers.compare_trees import FileChange
    from kedge.answers.image_diff import ImageDiff
    from kedge.cli.console import Console
    from kedge.compat.packages.constraints import PackageChange

_MOST_FILES = 20
_LONGEST_VALUE = 60
_NOTHING = "-"


def show_diff(difference: ImageDiff, console: Console, *, everything: bool) -> None:
    """Print packages, config and files; of the files the largest, unless `everything` is set."""
    if difference.is_empty:
        console.print(f"{difference.base} and {difference.new} do not differ")
        return
    _show_packages(difference.packages, console)
    if difference.config:
        console.print(f"Config: {count_things(len(difference.config), 'setting')} changed")
        rows = [(change.name, _shorten(change.before), _shorten(change.after)) for change in difference.config]
        console.print_table(("Setting", "Before", "After"), rows)
        console.print()
    _show_files(difference.files, console, everything=everything)


def _show_packages(changes: Sequence[PackageChange], console: Console) -> None:
    if not changes:
        console.print("Packages: none changed")
        console.print()
        return
    installed = sum(not change.before for change in changes)
    removed = sum(not change.after for change in changes)
    changed = len(changes) - installed - removed
    console.print(f"Packages: {installed} installed, {removed} removed, {changed} changed")
    rows = [
        (change.name, change.before or _NOTHING, change.after or _NOTHING, change.manager, change.place)
        for change in changes
    ]
    console.print_table(("Package", "Before", "After", "Manager", "Directory"), rows)
    console.print()


def _show_files(changes: Sequence[FileChange], console: Console, *, everything: bool) -> None:
    if not changes:
        console.print("Files: none changed")
        return
    counts = []
    for word in ("added", "removed", "changed"):
        files = [change for change in changes if change.change == word]
        counts.append(f"{len(files)} {word} ({_show_growth(sum(change.growth for change in files))})")
    console.print(f"Files: {', '.join(counts)}")
    shown = list(changes) if everything else sorted(changes, key=lambda change: -abs(change.growth))[:_MOST_FILES]
    rows = [(_describe(change), _show_growth(change.growth), change.path) for change in shown]
    console.print_table(("Change", "Size", "Path"), rows)
    if len(shown) < len(changes):
        console.print(f"{len(changes) - len(shown)} more; list them with --all")


def _describe(change: FileChange) -> str:
    return f"{change.change} ({', '.join(change.what)})" if change.what not in ((), ("content",)) else change.change


def _show_growth(growth: int) -> str:
    return f"{'-' if growth < 0 else '+'}{format_size(abs(growth))}"


def _shorten(value: str | None) -> str:
    if value is None:
        return _NOTHING
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…"
