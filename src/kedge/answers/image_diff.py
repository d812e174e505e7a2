# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image diff`: what a build changed: files, packages of every manager, settings of the config."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kedge.answers.image_trees import ImageTree, open_images, read_trees, show_path
from kedge.base.frozen import JsonValue, frozen
from kedge.base.manifest import ImageConfig
from kedge.base.reference import Reference
from kedge.base.tree import Node, NodeKind, walk
from kedge.compat.packages.constraints import PackageChange, list_changes
from kedge.compat.packages.package import CONDA, PIP, normalize_name
from kedge.image.formats.singularityd import fixed_files
from kedge.image.sources.image_source import ImageSource, LayeredImage
from kedge.image.workplace import Workplace

# The difference between two images, file by file: contents, types, permissions, owners and links; never times.
#
# A directory counts where it is empty or its permissions changed. What kedge adds to a SIF (`.singularity.d` and mount
# points) is no difference where only one of the two is a SIF.

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


@frozen
class ImageDiff(JsonValue):
    """All differences between two images."""

    base: str
    new: str
    files: tuple[FileChange, ...] = ()
    packages: tuple[PackageChange, ...] = ()
    config: tuple[ConfigChange, ...] = ()
    shared_layers: int = 0  # lowest layers that both have

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.files or self.packages or self.config)


def diff_images(base: Reference, new: Reference, workplace: Workplace) -> ImageDiff:
    """Compare two images wherever they are; layers that both have are read once, and not at all if all are the same."""
    names = base.shown, new.shown
    with open_images((base, new), workplace) as images:
        old, changed = images
        config = tuple(compare_configs(old.config, changed.config)) if old.config and changed.config else ()
        shared, has_same_layers = _count_shared(old, changed)
        if has_same_layers:
            return ImageDiff(*names, config=config, shared_layers=shared)
        trees = read_trees(list(zip(names, images, strict=True)), workplace)
        files, packages = tuple(compare_trees(*trees)), tuple(_compare_packages(*trees))
        return ImageDiff(*names, files, packages, config, shared)


def _count_shared(base: ImageSource, new: ImageSource) -> tuple[int, bool]:
    """How many of the lowest layers are the same, and whether all are."""
    if not isinstance(base, LayeredImage) or not isinstance(new, LayeredImage):
        return 0, False
    one, other = ([layer.diff_id or layer.digest for layer in image.layers] for image in (base, new))
    shared = 0
    for left, right in zip(one, other, strict=False):
        if left is None or left != right:
            break
        shared += 1
    return shared, shared == len(one) == len(other)


def _compare_packages(base: ImageTree, new: ImageTree) -> list[PackageChange]:
    changes = list_changes(base.list_packages(), new.list_packages())
    return [change for change in changes if change.manager != PIP or not _is_of_conda(change, changes)]


def _is_of_conda(change: PackageChange, changes: Sequence[PackageChange]) -> bool:
    """Whether conda says the same of a Python package: it installs what pip lists, too."""
    return any(
        other.manager == CONDA
        and normalize_name(other.name) == normalize_name(change.name)
        and (other.before, other.after) == (change.before, change.after)
        and change.place.startswith(f"{other.place}/")
        for other in changes
    )
