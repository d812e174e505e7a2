# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image diff`: what a build changed: files, packages of every manager, settings of the config."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.answers.compare_trees import ConfigChange, FileChange, compare_configs, compare_trees
from kedge.answers.image_trees import ImageTree, open_images, read_trees
from kedge.base.frozen import JsonValue, frozen
from kedge.base.reference import Reference
from kedge.compat.packages.constraints import PackageChange, list_changes
from kedge.compat.packages.package import CONDA, PIP, normalize_name
from kedge.image.sources.image_source import ImageSource, LayeredImage
from kedge.image.workplace import Workplace


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
