# SPDX-License-Identifier: BSD-3-Clause
"""Mount points in a directory that a step of a build writes itself, because no overlay can be had.

They are made before the step and removed after it, so that they are no part of its layer; the times of the directories
around them stay as they were. What the step put there meanwhile stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from kedge.runtime.container_view import OPEN_DIRECTORY, Maker, make_inside, name_descriptor


class StepPoints:
    """The points of one step; a context manager around it."""

    def __init__(self, root: str, wanted: Iterable[tuple[str, str]]) -> None:
        self._root = root
        self._wanted = list(wanted)  # path in the root, and `d` or `f`
        self._made: list[tuple[int, str]] = []  # the open directory and the name in it, in the order of making

    def __enter__(self) -> None:
        root = os.open(self._root, OPEN_DIRECTORY)
        try:
            for path, shape in self._wanted:
                with contextlib.suppress(OSError):  # the mount says what is wrong
                    make_inside(root, path, _RecordingMaker(shape, self._made))
        finally:
            os.close(root)

    def __exit__(self, *_: object) -> None:
        for folder, name in reversed(self._made):
            with contextlib.suppress(OSError), _KeptTime(folder):
                _remove_empty(folder, name)
            os.close(folder)


class _RecordingMaker(Maker):
    """Remembers what it made, and where."""

    def __init__(self, shape: str, made: list[tuple[int, str]]) -> None:
        super().__init__(shape, is_exact=True)
        self._made = made

    def make(self, folder: int, name: str, *, is_last: bool) -> None:
        with _KeptTime(folder):
            super().make(folder, name, is_last=is_last)
        self._made.append((os.dup(folder), name))


class _KeptTime:
    """Lets a directory have the same time of change before and after."""

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._before = os.fstat(self._folder)

    def __exit__(self, *_: object) -> None:
        times = (self._before.st_atime_ns, self._before.st_mtime_ns)
        with contextlib.suppress(OSError):
            os.utime(name_descriptor(self._folder), ns=times)


def _remove_empty(folder: int, name: str) -> None:
    """Remove a directory or file that nobody put anything into."""
    try:
        os.rmdir(name, dir_fd=folder)
    except NotADirectoryError:
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_size == 0:
            os.unlink(name, dir_fd=folder)
