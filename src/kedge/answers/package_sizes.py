# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of every package, by the lists of files that package managers keep.

A file counts once: for the distribution's package that owns it, else for conda's, else for pip's.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kedge.answers.image_trees import ImageTree
from kedge.base.tree import Node, NodeKind, find
from kedge.compat.contents.leftovers import is_build_tool
from kedge.compat.contents.size_report import PackageSize, SizeShare
from kedge.compat.packages.package import APK, CONDA, DPKG, PIP, RPM, InstalledPackage
from kedge.image.tree_view import TreeView

UNOWNED = "no package manager"
_RANKS = {DPKG: 0, RPM: 0, APK: 0, CONDA: 1, PIP: 2}


@dataclass(frozen=True, slots=True)
class MeasuredPackages:
    """What packages take, largest first."""

    managers: tuple[SizeShare, ...]
    packages: tuple[PackageSize, ...]
    build_tools: tuple[PackageSize, ...]


def measure_packages(tree: ImageTree, files: Mapping[int, Node]) -> MeasuredPackages:
    """Count the files of every package; `files` are all files of the image by identity."""
    finder = _FileFinder(tree)
    counted: set[int] = set()
    sizes: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    packages = []
    for package in sorted(tree.list_packages(), key=lambda package: _RANKS[package.manager]):
        nodes = {id(node): node for node in finder.find_all(package.files) if id(node) not in counted}
        counted |= nodes.keys()
        size = sum(node.size for node in nodes.values())
        sizes[package.manager][0] += size
        sizes[package.manager][1] += len(nodes)
        packages.append(_make_size(package, size))
    rest = [node.size for key, node in files.items() if key not in counted]
    sizes[UNOWNED] = [sum(rest), len(rest)]
    managers = [SizeShare(name, size, count) for name, (size, count) in sizes.items() if count]
    packages.sort(key=lambda package: (-package.size, package.name))
    tools = tuple(p for p in packages if p.size and p.manager in (DPKG, RPM, APK) and is_build_tool(p.name))
    return MeasuredPackages(tuple(sorted(managers, key=lambda share: -share.size)), tuple(packages), tools)


def _make_size(package: InstalledPackage, size: int) -> PackageSize:
    return PackageSize(package.manager, package.name, package.version, size)


class _FileFinder:
    """Looks files up by path; links in directories (`/lib` for `/usr/lib`) are followed, and remembered."""

    def __init__(self, tree: ImageTree) -> None:
        self._view: TreeView = tree.view
        self._root = tree.root
        self._directories: dict[str, Node | None] = {}

    def find_all(self, paths: Iterable[str]) -> Iterable[Node]:
        for path in paths:
            directory, _, name = path.rpartition("/")
            if directory not in self._directories:
                self._directories[directory] = self._find_directory(directory)
            parent = self._directories[directory]
            node = parent.children.get(os.fsencode(name)) if parent is not None else None
            if node is not None and node.kind is NodeKind.FILE:
                yield node

    def _find_directory(self, path: str) -> Node | None:
        try:
            return find(self._root, os.fsencode(self._view.resolve(path or "/")))
        except (OSError, ValueError):  # links in a circle, or a name that is no text
            return None
