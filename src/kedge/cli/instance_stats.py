# SPDX-License-Identifier: BSD-3-Clause
"""`kedge instance stats`: what an instance uses, once or every second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kedge.base.size import format_size
from kedge.container.instance_stats import InstanceUsage, measure

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.container.processes.instance_records import Instance

_INTERVAL = 1.0  # seconds
_HEADINGS = ("INSTANCE NAME", "CPU USAGE", "MEM USAGE / LIMIT", "MEM %", "BLOCK I/O", "PIDS")


def show_stats(instance: Instance, console: Console, *, is_once: bool) -> None:
    """Print a table, and unless it is wanted once, a line every second until the instance ends."""
    before = measure(instance)
    time.sleep(_INTERVAL)
    now = measure(instance)
    if console.json:
        console.print_json(describe(instance, now, before))
        return
    first = _format_row(instance, now, before)
    widths = [max(len(heading), len(cell)) + 2 for heading, cell in zip(_HEADINGS, first, strict=True)]
    _print_line(console, _HEADINGS, widths)
    _print_line(console, first, widths)
    while not is_once and instance.lives:
        before = now
        time.sleep(_INTERVAL)
        now = measure(instance)
        if now.processes:
            _print_line(console, _format_row(instance, now, before), widths)


def describe(instance: Instance, now: InstanceUsage, before: InstanceUsage) -> dict[str, object]:
    """The figures as JSON has them, in bytes and percent."""
    return {
        "instance": instance.name,
        "cpu_percent": round(now.cpu_share(before), 2),
        "cpu_seconds": now.cpu,
        "memory": now.memory,
        "memory_limit": now.limit,
        "read": now.read,
        "written": now.written,
        "processes": now.processes,
    }


def _format_row(instance: Instance, now: InstanceUsage, before: InstanceUsage) -> tuple[str, ...]:
    return (
        instance.name,
        f"{now.cpu_share(before):.2f}%",
        f"{format_size(now.memory)} / {format_size(now.limit)}",
        f"{100 * now.memory / max(1, now.limit):.2f}%",
        f"{format_size(now.read)} / {format_size(now.written)}",
        str(now.processes),
    )


def _print_line(console: Console, cells: tuple[str, ...], widths: list[int]) -> None:
    line = "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    console.write_bytes(f"{line.rstrip()}\n".encode())
