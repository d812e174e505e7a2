# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command and says what it cost: wall clock, CPU of it and its children, largest resident set."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cost:
    wall: float
    cpu: float
    peak: int  # bytes: the largest resident set of any one process of the command
    output: str


def measure(argv: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> Cost:
    """Run to the end; a command that fails ends the benchmark with what it said."""
    merged = {**os.environ, **(environment or {})}
    merged.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its bytecode
    started = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=merged, cwd=cwd) as process:
        assert process.stdout is not None
        output = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{' '.join(argv)} failed with status {process.returncode}:\n{output[-3000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output)


def best_of(times: int, argv: Sequence[str], **options: object) -> Cost:
    """The run with the smallest wall time: the one least disturbed by the machine's other work."""
    return min((measure(argv, **options) for _ in range(times)), key=lambda cost: cost.wall)  # type: ignore[arg-type]
