# SPDX-License-Identifier: BSD-3-Clause
"""`kedge jobs --efficiency`: what jobs requested, what they used, and what would have been enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.duration import format_duration
from kedge.base.size import format_size
from kedge.cli.redaction import escape_line

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.jobs.efficiency import JobEfficiency

_HEADINGS = ("job", "name", "state", "time", "CPU", "memory", "GPU", "enough")
_LONGEST_NAME = 20


def show_efficiency(found: Sequence[JobEfficiency], console: Console) -> None:
    """A table, or JSON."""
    if console.json:
        console.print_json([{**each.as_dict(), "cpu_load": _round(each.cpu_load)} for each in found])
        return
    if found:
        console.print_table(_HEADINGS, [_make_row(each, console) for each in found])
    if any(not each.sources for each in found):
        console.print("Empty cells: the job left no record, and the scheduler keeps no accounts of it")
    console.print(f"{len(found)} job{'' if len(found) == 1 else 's'} that ended")


def _make_row(found: JobEfficiency, console: Console) -> tuple[str, ...]:
    name = escape_line(found.name)
    return (
        found.id,
        name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…",
        console.paint(found.state, found.state),
        _compare(_show_time(found.seconds), _show_time(found.time_limit)),
        _show_cpus(found),
        _compare(_show_size(found.memory), _show_size(found.memory_asked)),
        _show_gpus(found),
        " ".join(found.enough),
    )


def _compare(used: str, asked: str) -> str:
    return f"{used} of {asked}" if used and asked else used


def _show_time(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(round(seconds))


def _show_size(size: int | None) -> str:
    return "" if size is None else format_size(size)


def _show_cpus(found: JobEfficiency) -> str:
    load = found.cpu_load
    return "" if load is None else f"{load:.0f} % of {found.cpus}"


def _show_gpus(found: JobEfficiency) -> str:
    if found.gpu_load is None:
        return f"of {found.gpus}" if found.gpus else ""
    memory = "" if found.gpu_memory is None else f", memory {found.gpu_memory:.0f} %"
    return f"{found.gpu_load:.0f} %" + (f" of {found.gpus}" if found.gpus else "") + memory


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
