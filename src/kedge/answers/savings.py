# SPDX-License-Identifier: BSD-3-Clause
"""What an image could do without, each with the bytes it would save and the better line of a recipe."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

from kedge.answers.image_trees import ImageFiles, show_path
from kedge.compat.contents.leftovers import LeftoverRule, find_leftover, list_leftover_rules
from kedge.compat.contents.size_report import DuplicateFiles, LayerSize, PackageSize, Saving

_SMALLEST = 100_000  # bytes; less is not worth a line
_MOST_EXAMPLES = 3


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
                examples=tuple(show_path(path) for _, path in entries[:_MOST_EXAMPLES]),
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
            examples=tuple(path for layer in hidden for path in layer.examples)[:_MOST_EXAMPLES],
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
            examples=tuple(f"{tool.name} {tool.version}" for tool in tools[:_MOST_EXAMPLES]),
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
            examples=tuple(group.paths[0] for group in duplicates[:_MOST_EXAMPLES]),
        )
