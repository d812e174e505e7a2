# SPDX-License-Identifier: BSD-3-Clause
"""Mount points in a directory that a step of a build writes itself, because no overlay can be had.

They are made before the step and removed after it, so that they are no part of its layer; the times of the directories
around them stay as they were. What the step put there meanwhile stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from kedge.container.mount_operations import OPEN_DIRECTORY, ContainerView, Maker, make_inside, name_descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.system.views import View


class StepPoints:
    """The points of one step; a context manager around it."""

    def __init__(self, root: str, wanted: Iterable[tuple[str, str]]) -> None:
        self._root = root
        self._wanted = list(wanted)  # path in the root, and `d` or `f`
        self._made: list[tuple[int, str]] = []  # the open directory and the name in it, in the order of making

    def __enter__(self) -> None:
        view = ContainerView(os.open(self._root, OPEN_DIRECTORY))
        try:
            for path, shape in self._wanted:
                self._make(view.descriptor, path, shape)
            for path, text in list_emulation_files(view) if self._wanted else ():
                if not view.kind(path) and self._make(view.descriptor, path, "f"):
                    folder, name = self._made[-1]
                    with _KeptTime(folder), open(f"{name_descriptor(folder)}/{name}", "w", encoding="utf-8") as file:
                        file.write(text)
        finally:
            view.close()

    def _make(self, root: int, path: str, shape: str) -> bool:
        count = len(self._made)
        with contextlib.suppress(OSError):  # the mount says what is wrong
            make_inside(root, path, _RecordingMaker(shape, self._made))
        return len(self._made) > count

    def __exit__(self, *_: object) -> None:
        for folder, name in reversed(self._made):
            with contextlib.suppress(OSError), _KeptTime(folder):
                _remove_own(folder, name)
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


def _remove_own(folder: int, name: str) -> None:
    """Remove a directory or file that nobody put anything else into."""
    try:
        os.rmdir(name, dir_fd=folder)
    except NotADirectoryError:
        with open(f"{name_descriptor(folder)}/{name}", encoding="utf-8", errors="replace") as file:
            is_own = file.read(1000) in ("", *(text for _, text in EMULATION_FILES))
        if is_own:
            os.unlink(name, dir_fd=folder)


# Files that fake root finds where it may write and is the only user, and that get into no overlay and no layer.
#
# apt changes to the user _apt for downloads and checks that it has become that user, which no emulation by a filter of
# system calls can show it. A file of configuration says not to. It lies in a layer below the image, so that a recipe
# can remove what is in its directory, and a variable that a recipe does not know of is not needed.

EMULATION_FILES = (("/etc/apt/apt.conf.d/zz-kedge-fakeroot", 'APT::Sandbox::User "root";\n'),)


def list_emulation_files(view: View) -> tuple[tuple[str, str], ...]:
    """Path and text of those that this image has a directory for."""
    return tuple((path, text) for path, text in EMULATION_FILES if view.kind(path.rpartition("/")[0]) == "d")
