# SPDX-License-Identifier: BSD-3-Clause
"""Images for one container alone, with --disable-cache: unpacked for it, and removed when its program has ended.

The process that was called stays outside for that; an instance is left by its starter, so whoever stops it removes its
image. Where one is killed, the next that unpacks here removes what is left: the name says whose it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.container.processes.supervise import run_supervised
from kedge.image.node_cache import LOCK
from kedge.system.confined_paths import remove_tree
from kedge.system.files import TEMPORARY_PREFIX
from kedge.system.owned_names import own_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_PREFIX = f"{TEMPORARY_PREFIX}once"
_PATIENCE = 5.0  # seconds; who serves a container's files notices a moment later that it has ended


def name_temporary_image() -> str:
    """A name for an image of this process's own."""
    return own_name(_PREFIX)


def run_and_remove(start: Callable[[], None], root: str) -> NoReturn:
    """Run `start`, which becomes the program, in a child; end as it ends, without the image."""
    run_supervised(start, with_init=False, after=lambda _: _remove_now(root))


def _remove_now(root: str) -> None:
    _remove(Path(root).parent)


def remove_temporary_image(root: str) -> None:
    """Remove the image of an instance that has ended; waits a moment for those who still use it.

    The record of an instance says which: root may stop others' instances, so only an image of this user's own is taken.
    """
    folder = Path(root).parent
    end = time.monotonic() + _PATIENCE
    while _is_own(folder) and not _remove(folder) and time.monotonic() < end:
        time.sleep(0.02)


def _is_own(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False  # it is gone
    return folder.name.startswith(_PREFIX) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _remove(folder: Path) -> bool:
    """Remove the image; False where something that the program left behind still runs from it."""
    with contextlib.suppress(OSError):
        lock = folder / LOCK
        _let_go(lock)
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            remove_tree(folder)
    return True


def _let_go(lock: Path) -> None:
    """Close what this process holds the image with; the program had the same open file."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if descriptor.readlink() == lock:
                os.close(int(descriptor.name))
