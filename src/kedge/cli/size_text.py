# SPDX-License-Identifier: BSD-3-Clause
"""The sizes of an image as people read them on a terminal: the answer first, then what can go, then the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.counting import count_things
from kedge.base.size import format_size

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.compat.contents.size_report import Saving, SizeReport, SizeShare

_ROWS = 12


def show_size(report: SizeReport, console: Console, *, everything: bool) -> None:
    """Print the report; the largest of every kind, unless `everything` is set."""
    most = None if everything else _ROWS
    stored = f", {format_size(report.stored)} stored" if report.stored else ""
    console.print(f"{report.name}: {format_size(report.size)} in {count_things(report.files, 'file')}{stored}")
    _show_savings(report, console)
    _show_layers(report, console, most)
    _show_shares("Package manager", report.managers, report.size, console, most)
    if any(package.size for package in report.packages):
        console.print()
        rows = [
            (format_size(package.size), package.name, package.version, package.manager)
            for package in report.packages[:most]
            if package.size
        ]
        console.print_table(("Size", "Package", "Version", "Manager"), rows)
    _show_shares("Directory", report.directories, report.size, console, most)
    _show_shares("File type", report.types, report.size, console, most)
    if report.duplicates:
        console.print()
        copies = [(format_size(group.wasted), group.count, "  ".join(group.paths[:2])) for group in report.duplicates]
        console.print_table(("Wasted", "Copies", "Same contents"), copies[:most])


def _show_savings(report: SizeReport, console: Console) -> None:
    if not report.savings:
        return
    sure = sum(saving.size for saving in report.savings if not saving.is_optional)
    console.print(f"{format_size(sure)} can go without loss:" if sure else "Can go, if you do not need it:")
    for saving in report.savings:
        console.print_hanging(f"  {format_size(saving.size):>8}  ", _describe(saving))
        first, *others = saving.better.splitlines()
        for line in (f"-> {first}", *(f"   {line}" for line in others)):
            console.print(f"            {line}")


def _describe(saving: Saving) -> str:
    note = f" ({saving.note})" if saving.note else ""
    example = f", e.g. {saving.examples[0]}" if saving.examples else ""
    return f"{'optional: ' if saving.is_optional else ''}{saving.title}{note}{example}"


def _show_layers(report: SizeReport, console: Console, most: int | None) -> None:
    if not report.layers:
        return
    console.print()
    rows = [
        (
            format_size(layer.size),
            format_size(layer.stored),
            format_size(layer.hidden) if layer.hidden else "",
            number,
            layer.created_by,
        )
        for number, layer in enumerate(report.layers, 1)
    ]
    order = sorted(range(len(rows)), key=lambda place: -report.layers[place].size)[:most]
    console.print_table(("Size", "Stored", "Deleted later", "Layer", "Created by"), [rows[place] for place in order])


def _show_shares(title: str, shares: Sequence[SizeShare], total: int, console: Console, most: int | None) -> None:
    if not shares:
        return
    console.print()
    rows = [
        (format_size(share.size), f"{100 * share.size / max(total, 1):.0f} %", share.files, share.name)
        for share in shares[:most]
    ]
    console.print_table(("Size", "Share", "Files", title), rows)
