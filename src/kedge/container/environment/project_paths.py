# SPDX-License-Identifier: BSD-3-Clause
"""Which entries of PYTHONPATH and its relatives are the user's own code: those in the current project.

What belongs to an installation of the host stays outside even there, as a virtual environment in the project does.
"""

from __future__ import annotations

import os

from kedge.container.flags import list_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kedge.container.facts import Bind, HostFacts
    from kedge.container.options import RunOptions

_MARKS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg", "kedge.toml", "Project.toml", "package.json")
_PACKAGES = ("site-packages", "dist-packages")
_INSTALLATIONS = ("pyvenv.cfg", "conda-meta")


class Project:
    """The directory that the user works in, and what of it the container shows."""

    def __init__(self, options: RunOptions, host: HostFacts, binds: Sequence[Bind]) -> None:
        self._host = host
        self.root = self._find_root()
        self._shown = list_shown(options, host)
        self._binds = sorted(binds, key=lambda bind: bind.destination.count("/"))

    def _find_root(self) -> str:
        """The nearest folder above the current one with a mark of a project, else the current one; never the home."""
        host = self._host
        usual = [folder for folder in climb(host.cwd) if not _is_below(host.home, folder)]
        marked = (folder for folder in usual if any(host.view.kind(f"{folder}/{mark}") for mark in _MARKS))
        return next(marked, "".join(usual[:1]))

    def select(self, value: str) -> tuple[list[str], list[str]]:
        """The entries of a variable that pass, as absolute paths, and those that do not."""
        passed, left = [], []
        for entry in filter(None, value.split(":")):
            path = os.path.normpath(os.path.join(self._host.cwd, entry))
            if self.root and _is_below(path, self.root) and self._is_own(path) and self._is_seen(path):
                passed.append(path)
            else:
                left.append(entry)
        return passed, left

    def _is_own(self, path: str) -> bool:
        """Whether a path is code of the project and no environment that an interpreter of the host made in it."""
        if any(name in _PACKAGES for name in path.split("/")):
            return False
        view = self._host.view
        within = [folder for folder in climb(path) if _is_below(folder, self.root)]
        return not any(view.kind(f"{folder}/{mark}") for folder in within for mark in _INSTALLATIONS)

    def _is_seen(self, path: str) -> bool:
        """Whether the same files are at the same path in the container."""
        for bind in reversed(self._binds):
            if _is_below(path, bind.destination):
                return bind.source == bind.destination
        return any(_is_below(path, folder) for folder in self._shown)


def list_shown(options: RunOptions, host: HostFacts) -> list[str]:
    """The directories of the host that every container shows at their own places."""
    skipped = list_names(options.no_mount)
    if options.contain:
        return []
    shown = ["/tmp", "/var/tmp"] if "tmp" not in skipped else []
    if "cwd" not in skipped:
        shown.append(host.cwd)
    if not (options.no_home or options.home or "home" in skipped):
        shown.append(host.home)
    return shown


def climb(path: str) -> Iterator[str]:
    """The path and all directories above it but the root."""
    while len(path) > 1:
        yield path
        path = path.rpartition("/")[0]


def _is_below(path: str, folder: str) -> bool:
    """Whether a path is a directory or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
