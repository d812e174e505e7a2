# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image size`: which layer, package, directory and type of file holds the bytes, and what can go.

Sizes are those of files as programs see them, each file once however many names it has; what a layer or a SIF takes
on disk is compressed, and said beside it.
"""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kedge.answers.image_trees import ImageFiles, ImageTree, list_files, open_images, read_trees, show_path
from kedge.base.manifest import ImageConfig
from kedge.base.reference import Reference
from kedge.base.tree import Node, NodeKind, find
from kedge.compat.contents.size_report import (
    DuplicateFiles,
    LayerSize,
    LeftoverRule,
    PackageSize,
    Saving,
    SizeReport,
    SizeShare,
    find_leftover,
    is_build_tool,
    list_leftover_rules,
    name_type,
)
from kedge.compat.packages.package import APK, CONDA, DPKG, PIP, RPM, InstalledPackage
from kedge.image.clean_config import shorten_command
from kedge.image.sources.image_source import LayeredImage
from kedge.image.tree_view import TreeView
from kedge.image.workplace import Workplace

_SMALLEST_DUPLICATE = 64 << 10
_MOST_DUPLICATES, _MOST_PATHS, _MOST_EXAMPLES = 50, 6, 3
_LONGEST_COMMAND = 200


def measure_image(reference: Reference, workplace: Workplace) -> SizeReport:
    """Read an image whole and tell what its bytes are."""
    name = reference.shown
    with open_images((reference,), workplace) as images:
        (tree,) = read_trees([(name, images[0])], workplace)
        return measure_tree(tree)


def measure_tree(tree: ImageTree) -> SizeReport:
    """What the bytes of an image that was read are."""
    files = list_files(tree.root)
    measured = measure_packages(tree, files.nodes)
    duplicates = tuple(_list_duplicates(tree, files))
    layers = tuple(_measure_layers(tree, files))
    return SizeReport(
        name=tree.name,
        size=files.size,
        files=len(files.nodes),
        stored=tree.stored_size,
        layers=layers,
        managers=measured.managers,
        packages=measured.packages,
        directories=divide_directories(tree.root),
        types=tuple(_measure_types(files)),
        duplicates=duplicates,
        savings=tuple(list_savings(files, measured.build_tools, layers, duplicates)),
    )


def _measure_types(files: ImageFiles) -> Iterator[SizeShare]:
    sizes: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for node, paths in files:
        total = sizes[name_type(paths[0].rpartition(b"/")[2], node.mode)]
        total[0] += node.size
        total[1] += 1
    for name, (size, count) in sorted(sizes.items(), key=lambda item: -item[1][0]):
        yield SizeShare(name, size, count)


def _list_duplicates(tree: ImageTree, files: ImageFiles) -> Iterator[DuplicateFiles]:
    """Groups of files with the same contents, most wasteful first; contents are read where sizes are the same."""
    by_size: dict[int, list[tuple[Node, list[bytes]]]] = defaultdict(list)
    for node, paths in files:
        if node.size >= _SMALLEST_DUPLICATE:
            by_size[node.size].append((node, paths))
    groups: dict[tuple[int, bytes], list[bytes]] = defaultdict(list)
    for size, entries in by_size.items():
        for node, paths in entries if len(entries) > 1 else ():
            groups[size, tree.digest(node)].append(paths[0])
    same = [(size, sorted(paths)) for (size, _), paths in groups.items() if len(paths) > 1]
    for size, paths in sorted(same, key=lambda item: -item[0] * (len(item[1]) - 1))[:_MOST_DUPLICATES]:
        yield DuplicateFiles(size, tuple(map(show_path, paths[:_MOST_PATHS])), len(paths))


def _measure_layers(tree: ImageTree, files: ImageFiles) -> Iterator[LayerSize]:
    image = tree.image
    if not isinstance(image, LayeredImage):
        return
    commands = _list_commands(image.config, len(tree.records))
    for record, descriptor, command in zip(tree.records, image.manifest.layers, commands, strict=True):
        entries = [
            (parent + b"/" + name if parent else name, item)
            for parent, name, item in record.entries
            if isinstance(item, Node) and item.kind is NodeKind.FILE
        ]
        hidden = sorted(
            ((node.size, path) for path, node in entries if id(node) not in files.nodes), key=lambda pair: -pair[0]
        )
        yield LayerSize(
            digest=str(descriptor.digest),
            created_by=command,
            stored=descriptor.size,
            size=sum(node.size for _, node in entries),
            hidden=sum(size for size, _ in hidden),
            hidden_files=len(hidden),
            examples=tuple(show_path(path) for size, path in hidden[:_MOST_EXAMPLES] if size),
        )


def _list_commands(config: ImageConfig, count: int) -> Sequence[str]:
    """The instruction of each layer, where the history has as many as there are layers."""
    entries = [entry for entry in config.history if not entry.get("empty_layer")]
    if len(entries) != count:
        return ("",) * count
    return [shorten_command(str(entry.get("created_by") or ""), _LONGEST_COMMAND) for entry in entries]


# An image divided into directories that do not overlap: the largest is split into its parts until there are enough.

_MOST_PARTS = 40
_SMALLEST_SHARE = 0.01  # of the whole: smaller ones stay together
_SPLIT_SHARE = 0.03  # larger ones are split


@dataclass(frozen=True, slots=True)
class _Measured:
    size: int
    files: int


def divide_directories(root: Node, most: int = _MOST_PARTS) -> tuple[SizeShare, ...]:
    """Parts whose sizes add up to the image, largest first; `usr/lib/…` is the rest of a directory that was split."""
    sizes = _measure(root)
    total = max(sizes[id(root)].size, 1)
    heap = [(-sizes[id(root)].size, b"", root)]
    parts: list[SizeShare] = []
    while heap and len(parts) + len(heap) < most:
        negative, path, node = heapq.heappop(heap)
        children = [
            (-sizes[id(child)].size, path + b"/" + name, child)
            for name, child in sorted(node.children.items())
            if id(child) in sizes and sizes[id(child)].size >= _SMALLEST_SHARE * total
        ]
        if not children or (-negative < _SPLIT_SHARE * total and path):
            parts.append(_make_share(path, sizes[id(node)]))
            continue
        for child in children:
            heapq.heappush(heap, child)
        rest = sizes[id(node)].size + sum(size for size, _, _ in children)
        files = sizes[id(node)].files - sum(sizes[id(child)].files for _, _, child in children)
        if rest > 0:
            parts.append(SizeShare(f"{os.fsdecode(path)}/…", rest, files))
    parts += [_make_share(path, sizes[id(node)]) for _, path, node in heap]
    return tuple(sorted(parts, key=lambda part: -part.size))


def _make_share(path: bytes, measured: _Measured) -> SizeShare:
    return SizeShare(os.fsdecode(path) or "/", measured.size, measured.files)


def _measure(root: Node) -> dict[int, _Measured]:
    """Every directory with the bytes below it, and every file; one with several names counts at the first of them."""
    sizes: dict[int, _Measured] = {}
    counted: set[int] = set()
    stack = [(root, False)]
    while stack:
        node, is_ready = stack.pop()
        if not is_ready:
            stack.append((node, True))
            stack += [(child, False) for _, child in sorted(node.children.items()) if child.kind is NodeKind.DIRECTORY]
            continue
        size = files = 0
        for _, child in sorted(node.children.items()):
            if child.kind is NodeKind.DIRECTORY:
                size, files = size + sizes[id(child)].size, files + sizes[id(child)].files
            elif child.kind is NodeKind.FILE and id(child) not in counted:
                counted.add(id(child))
                sizes[id(child)] = _Measured(child.size, 1)
                size, files = size + child.size, files + 1
        sizes[id(node)] = _Measured(size, files)
    return sizes


# The bytes of every package, by the lists of files that package managers keep.
#
# A file counts once: for the distribution's package that owns it, else for conda's, else for pip's.

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


# What an image could do without, each with the bytes it would save and the better line of a recipe.

_SMALLEST = 100_000  # bytes; less is not worth a line
_SAVINGS_MOST_EXAMPLES = 3


def list_savings(
    files: ImageFiles,
    build_tools: Sequence[PackageSize],
    layers: Sequence[LayerSize],
    duplicates: Sequence[DuplicateFiles],
) -> list[Saving]:
    """Return all savings worth a line: what has no use first, the largest first."""
    savings = [*_list_hidden(layers), *_list_leftovers(files), *_list_tools(build_tools), *_list_copies(duplicates)]
    worth = [saving for saving in savings if saving.size >= _SMALLEST]
    return sorted(worth, key=lambda saving: (saving.is_optional, -saving.size))


def _list_leftovers(files: ImageFiles) -> Iterator[Saving]:
    """A file counts where all its names fall under a rule: conda's cache has links into the environment."""
    found: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for node, paths in files:
        rules = [_find_rule(path) for path in paths]
        if rules[0] is not None and all(rules):
            found[rules[0].name].append((node.size, paths[0]))
    for rule in list_leftover_rules():
        entries = sorted(found[rule.name], reverse=True)
        if entries:
            yield Saving(
                name=rule.name,
                title=rule.title,
                size=sum(size for size, _ in entries),
                files=len(entries),
                better=rule.better,
                is_optional=rule.is_optional,
                note=rule.note,
                examples=tuple(show_path(path) for _, path in entries[:_SAVINGS_MOST_EXAMPLES]),
            )


def _find_rule(path: bytes) -> LeftoverRule | None:
    directory, _, name = os.fsdecode(path).rpartition("/")
    return find_leftover(directory, name)


def _list_hidden(layers: Sequence[LayerSize]) -> Iterator[Saving]:
    hidden = sorted((layer for layer in layers if layer.hidden), key=lambda layer: -layer.hidden)
    if hidden:
        yield Saving(
            "deleted-later",
            "files that a later layer deletes or replaces",
            sum(layer.hidden for layer in hidden),
            sum(layer.hidden_files for layer in hidden),
            "RUN COMMAND && rm -rf FILES",
            note="delete files in the step that makes them: a later step hides them, and their layer stays",
            examples=tuple(path for layer in hidden for path in layer.examples)[:_SAVINGS_MOST_EXAMPLES],
        )


def _list_tools(tools: Sequence[PackageSize]) -> Iterator[Saving]:
    if tools:
        yield Saving(
            "build-tools",
            "compilers and headers",
            sum(tool.size for tool in tools),
            0,
            "FROM DEVEL-IMAGE AS builder\nRUN make install\nFROM RUNTIME-IMAGE\n"
            "COPY --from=builder /usr/local /usr/local",
            is_optional=True,
            note="compile in a first stage, and copy the result into a runtime image",
            examples=tuple(f"{tool.name} {tool.version}" for tool in tools[:_SAVINGS_MOST_EXAMPLES]),
        )


def _list_copies(duplicates: Sequence[DuplicateFiles]) -> Iterator[Saving]:
    if duplicates:
        yield Saving(
            "duplicates",
            "files that are there more than once",
            sum(group.wasted for group in duplicates),
            sum(group.count - 1 for group in duplicates),
            "RUN ln -sf FIRST SECOND",
            is_optional=True,
            note="two packages may bring the same library: install only one of them",
            examples=tuple(group.paths[0] for group in duplicates[:_SAVINGS_MOST_EXAMPLES]),
        )
