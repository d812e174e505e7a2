# SPDX-License-Identifier: BSD-3-Clause
"""Images for one container alone, with --disable-cache: unpacked for it, and removed when its program has ended.

The process that was called stays outside for that. Where it is killed, the next that unpacks here removes what is left:
the name says whose it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.posix.beneath import remove_tree
from kedge.posix.files import TEMPORARY_PREFIX
from kedge.posix.owners import own_name
from kedge.runtime.processes.supervise import run_supervised

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


def name_passing() -> str:
    """A name for an image of this process's own."""
    return own_name(f"{TEMPORARY_PREFIX}once")


def run_and_remove(start: Callable[[], None], root: str) -> NoReturn:
    """Run `start`, which becomes the program, in a child; end as it ends, without the image."""
    run_supervised(start, with_init=False, after=lambda: _remove(Path(root).parent))


def _remove(folder: Path) -> None:
    """Remove the image, unless something that the program left behind still runs from it."""
    with contextlib.suppress(OSError):
        lock = folder / "lock"
        _let_go(lock)
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(folder)


def _let_go(lock: Path) -> None:
    """Close what this process holds the image with; the program had the same open file."""
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if each.readlink() == lock:
                os.close(int(each.name))
