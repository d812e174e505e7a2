# SPDX-License-Identifier: BSD-3-Clause
"""LD_LIBRARY_PATH where libraries of the host are in the container: the image's own of the same names come first."""

from __future__ import annotations

from kedge.container.facts import LIBRARIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.system.views import View

_STANDARD = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_DEEPEST = 4  # files that include each other


def plan_library_path(view: View, names: set[str]) -> str:
    """What LD_LIBRARY_PATH is where nothing else is in it: folders of the image that have one of the names, then ours.

    No more directories than that: they go before those that programs name themselves (RUNPATH), as Python's wheels do.
    """
    own = [folder for folder in find_library_folders(view) if not names.isdisjoint(view.names(folder))]
    return ":".join([*own, LIBRARIES])


def find_library_folders(view: View) -> list[str]:
    """Where the image's loader looks by itself; empty for images that are not glibc's, which need nothing."""
    if not view.read("/etc/ld.so.cache", 16) and not view.kind("/etc/ld.so.conf"):
        return []
    listed = _read_list(view, "/etc/ld.so.conf", 0)
    folders: dict[str, str] = {}
    for path in (*listed, *_STANDARD):
        if view.kind(path) == "d":
            folders.setdefault(view.resolve(path), path)
    return list(folders.values())


def _read_list(view: View, path: str, depth: int) -> list[str]:
    """The directories that an ld.so.conf names, with what it includes."""
    folders: list[str] = []
    for line in (view.read(path) or b"").decode(errors="surrogateescape").splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["include"] and depth < _DEEPEST:
            for pattern in words[1:]:
                for file in _match_files(view, pattern):
                    folders += _read_list(view, file, depth + 1)
        elif words and words[0].startswith("/"):
            folders.append(words[0].rstrip("/") or "/")
    return folders


def _match_files(view: View, pattern: str) -> list[str]:
    """`folder/*.conf`, the only kind of pattern that is used there, or one file."""
    folder, _, name = pattern.rpartition("/")
    folder = folder if folder.startswith("/") else f"/etc/{folder}".rstrip("/")
    start, star, end = name.partition("*")
    if not star:
        return [f"{folder}/{name}"]
    return [f"{folder}/{name}" for name in view.names(folder) if name.startswith(start) and name.endswith(end)]
