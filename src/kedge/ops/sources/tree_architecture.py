# SPDX-License-Identifier: BSD-3-Clause
"""Which machine a file tree is for, read from the ELF header of a program in it: the way Apptainer finds out too."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.errors import InvalidReference
from kedge.formats.elf import identify_machine
from kedge.model.platform import Platform
from kedge.model.tree import ContentSource, Node, NodeKind, find

_FOLDERS = (b"usr/bin", b"bin", b"usr/sbin", b"sbin", b"usr/local/bin", b"usr/lib", b"lib", b"")
_TRIES = 50  # files looked at per directory


def find_architecture(root: Node, source: ContentSource) -> Platform | None:
    """The platform of the first program found, or None in a tree without programs."""
    for node in _list_programs(root):
        name = identify_machine(next(source.chunks(node), b"")[:20])
        try:
            if name:
                return Platform.parse(name)
        except InvalidReference:  # a machine that no image is made for
            continue
    return None


def _list_programs(root: Node) -> Iterator[Node]:
    for folder in _FOLDERS:
        place = find(root, folder)
        files = [n for _, n in place.sorted_children() if n.kind is NodeKind.FILE and n.size > 64] if place else []
        yield from [node for node in files if node.mode & 0o111][:_TRIES]
