# SPDX-License-Identifier: BSD-3-Clause
"""Processes without the machinery of `subprocess`, for the path of every container start."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn


def replace_process(path: str, argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """execve(2): become another program; raises OSError when that fails."""
    os.execve(path, list(argv), environ)


def fork_process() -> int:
    """fork(2): 0 in the child, the child's number in the parent."""
    return os.fork()


def run_detached(work: Callable[[], None]) -> None:
    """Run `work` in a process that is nobody's child here: no wait of a later program ever meets it.

    The process in between is waited for. `work` normally ends by becoming another program.
    """
    middle = os.fork()
    if middle == 0:
        try:
            if os.fork() == 0:
                work()
        finally:
            os._exit(0)
    os.waitpid(middle, 0)
