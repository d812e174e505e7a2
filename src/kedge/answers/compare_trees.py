# SPDX-License-Identifier: BSD-3-Clause
"""The difference between two images, file by file: contents, types, permissions, owners and links; never times.

A directory counts where it is empty or its permissions changed. What kedge adds to a SIF (`.singularity.d` and mount
points) is no difference where only one of the two is a SIF.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kedge.answers.image_trees import ImageTree, show_path
from kedge.base.frozen import JsonValue, frozen
from kedge.base.manifest import ImageConfig
from kedge.base.tree import Node, NodeKind, walk
from kedge.image.formats.singularityd import fixed_files

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_ADDED_TO_SIFS = frozenset((*fixed_files.LINKS, *fixed_files.FOLDERS, *fixed_files.BIND_TARGETS, "var"))
_LISTS = ("Env", "Labels")


@frozen
class FileChange(JsonValue):
    """A path that differs; a size is None where there is no such file."""

    path: str
    change: str
    before: int | None = None
    after: int | None = None
    what: tuple[str, ...] = ()  # of a changed one: content, type, permissions, owner, target, attributes

    @property
    def growth(self) -> int:
        """How many bytes it adds to the image."""
        return (self.after or 0) - (self.before or 0)


@frozen
class ConfigChange(JsonValue):
    """A setting of the image config that differs; None: there is none."""

    name: str  # `Env PATH`, `Entrypoint`
    before: str | None
    after: str | None


def compare_trees(base: ImageTree, new: ImageTree) -> list[FileChange]:
    """Return all paths that differ, sorted."""
    ignores = base.image.is_decorated != new.image.is_decorated
    before, after = dict(walk(base.root)), dict(walk(new.root))
    return [
        change
        for path in sorted(before.keys() | after.keys())
        if not (ignores and _is_decoration(path)) and (change := _compare(path, before, after, (base, new))) is not None
    ]


def _is_decoration(path: bytes) -> bool:
    text = path.decode("utf-8", "replace")
    return text in _ADDED_TO_SIFS or text.startswith(".singularity.d/") or text == ".singularity.d"


def _compare(
    path: bytes, before: Mapping[bytes, Node], after: Mapping[bytes, Node], trees: tuple[ImageTree, ImageTree]
) -> FileChange | None:
    old, new = before.get(path), after.get(path)
    if old is None or new is None:
        node = old or new
        assert node is not None  # the path is of one of them
        if node.kind is NodeKind.DIRECTORY and node.children:
            return None
        sizes = (None, node.size) if old is None else (node.size, None)
        return FileChange(show_path(path), ADDED if old is None else REMOVED, *sizes)
    what = tuple(_list_differences(old, new, trees))
    return FileChange(show_path(path), CHANGED, old.size, new.size, what) if what else None


def _list_differences(old: Node, new: Node, trees: tuple[ImageTree, ImageTree]) -> Iterator[str]:
    base, changed = trees
    if old.kind is not new.kind:
        yield "type"
        return
    if old.kind is NodeKind.FILE and (old.size != new.size or _has_other_content(old, new, trees)):
        yield "content"
    if old.target != new.target or old.rdev != new.rdev:
        yield "target"
    if old.kind is not NodeKind.SYMLINK and old.mode != new.mode:
        yield "permissions"
    if base.has_owners and changed.has_owners and (old.uid, old.gid) != (new.uid, new.gid):
        yield "owner"
    if old.xattrs != new.xattrs:
        yield "attributes"


def _has_other_content(old: Node, new: Node, trees: tuple[ImageTree, ImageTree]) -> bool:
    if not old.size or (old.content is new.content and old.content is not None):
        return False
    return trees[0].digest(old) != trees[1].digest(new)


def compare_configs(base: ImageConfig | None, new: ImageConfig | None) -> list[ConfigChange]:
    """Settings that differ: variables and labels one by one."""
    before, after = _list_settings(base), _list_settings(new)
    return [
        ConfigChange(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _list_settings(config: ImageConfig | None) -> dict[str, str]:
    if config is None:
        return {}
    settings = {f"Env {name}": value for name, _, value in (text.partition("=") for text in config.environment)}
    settings |= {f"Label {name}": value for name, value in config.labels.items()}
    section: Mapping[str, Any] = config.section
    for name, value in section.items():
        if name not in _LISTS and value not in (None, "", [], {}, False):
            settings[name] = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return settings
