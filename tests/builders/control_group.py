# SPDX-License-Identifier: BSD-3-Clause
"""Control groups with a memory limit, version 1 or 2, whichever has the controller here; for root only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import require_root

_TOP = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A group whose processes together have `limit` bytes of memory, and no swap; skips where none can be made."""
    require_root()
    is_first = (_TOP / "memory/memory.limit_in_bytes").exists()
    group = (_TOP / "memory" if is_first else _TOP) / f"kedge-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(limit))
        swap = group / ("memory.memsw.limit_in_bytes" if is_first else "memory.swap.max")
        if swap.exists():
            swap.write_text(str(limit) if is_first else "0")
    except OSError as problem:
        pytest.skip(f"a control group cannot be made here: {problem.strerror}")
    try:
        yield group
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:  # the last process is not quite gone
                time.sleep(0.05)


def enter_group(group: Path, argv: list[str]) -> list[str]:
    """The command that runs `argv` inside the group."""
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *argv]
