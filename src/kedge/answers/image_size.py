# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image size`: which layer, package, directory and type of file holds the bytes, and what can go.

Sizes are those of files as programs see them, each file once however many names it has; what a layer or a SIF takes
on disk is compressed, and said beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kedge.answers.directory_shares import divide_directories
from kedge.answers.image_trees import ImageFiles, ImageTree, list_files, open_images, read_trees, show_path
from kedge.answers.package_sizes import measure_packages
from kedge.answers.savings import list_savings
from kedge.base.manifest import ImageConfig
from kedge.base.reference import Reference
from kedge.base.tree import Node, NodeKind
from kedge.compat.contents.file_types import name_type
from kedge.compat.contents.size_report import DuplicateFiles, LayerSize, SizeReport, SizeShare
from kedge.image.clean_config import shorten_command
from kedge.image.sources.image_source import LayeredImage
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
