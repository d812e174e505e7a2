# SPDX-License-Identifier: BSD-3-Clause
"""Mount points that an image lacks, where no overlay can be had.

The folder that should hold one is rebuilt: an empty file system in memory covers it, every entry of the image is bound
back into it (links are copied), and the missing ones are made beside them. All of the image stays visible.
"""

from __future__ import annotations

from kedge.container.mount_operations import (
    LOWER,
    MAY,
    NEW,
    WARN,
    BindMount,
    MakeDirectory,
    MakeLink,
    MakeReadonly,
    Tmpfs,
    make_point,
)
from kedge.system.libc import MS_RDONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.mount_operations import Operation
    from kedge.system.views import View

_OPTIONS = "mode=755"


def plan_underlay(missing: list[tuple[str, str]], view: View) -> list[Operation]:
    """The operations that make the missing points, each a path and `d` for a directory or `f` for a file.

    NEW must hold the image already, or be the place where it is to appear when a directory right below `/` is missing.
    Afterwards nothing more can be made in the rebuilt folders, except in NEW itself, which the caller makes read-only.
    """
    wanted: dict[str, str] = {}
    rebuilt: set[str] = set()
    for path, shape in missing:
        try:
            where = view.resolve(path)
        except OSError:
            continue  # links in a circle: the mount says so
        if view.kind(where):
            continue  # also where the shape is another: nothing of the image is hidden, the mount says what is wrong
        wanted[where] = shape
        rebuilt.add(_find_parent(where, view))
    operations: list[Operation] = []
    for top in sorted(rebuilt):
        if _parent(top) in rebuilt and top != "/":
            continue  # made together with its parent, in the same file system
        operations.append(Tmpfs(NEW + top if top != "/" else NEW, _OPTIONS))
        _fill_folder(top, rebuilt, wanted, view, operations)
        if top != "/":
            operations.append(MakeReadonly(NEW + top))
    return operations


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _find_parent(where: str, view: View) -> str:
    """The nearest directory above that the image has."""
    folder = _parent(where)
    while view.kind(folder) != "d":
        folder = _parent(folder)
    return folder


def _fill_folder(
    folder: str, rebuilt: set[str], wanted: dict[str, str], view: View, operations: list[Operation]
) -> None:
    """What the image has in it, then what is missing from it."""
    prefix = folder.rstrip("/") + "/"
    for name in view.names(folder):
        path = prefix + name
        link = view.read_link(path)
        if path in rebuilt:
            operations.append(MakeDirectory(NEW + path))
            _fill_folder(path, rebuilt, wanted, view, operations)
        elif link:
            operations.append(MakeLink(link, NEW + path))
        else:
            operations += _bind_entry(path, view)
    for where, shape in wanted.items():
        if where.startswith(prefix) and _find_parent(where, view) == folder:
            operations.append(make_point(where, shape, MAY))


def _bind_entry(path: str, view: View) -> list[Operation]:
    return [make_point(path, view.kind(path), WARN), BindMount(LOWER + path, NEW + path, MS_RDONLY, WARN)]
