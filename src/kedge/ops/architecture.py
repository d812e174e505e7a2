# SPDX-License-Identifier: BSD-3-Clause
"""Which machine a file tree is for, read from the ELF header of a program in it: the way Apptainer finds out too."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.model.platform import Platform
from kedge.model.tree import ContentSource, Kind, Node, find

_FOLDERS = (b"usr/bin", b"bin", b"usr/sbin", b"sbin", b"usr/local/bin", b"usr/lib", b"lib", b"")
_TRIES = 50  # files looked at per folder
# e_machine -> architecture (little endian, big endian)
_MACHINES = {
    3: ("386", ""),
    8: ("mipsle", "mips"),
    21: ("ppc64le", "ppc64"),
    22: ("", "s390x"),
    40: ("arm", ""),
    62: ("amd64", ""),
    183: ("arm64", ""),
    243: ("riscv64", ""),
    258: ("loong64", ""),
}


def find_architecture(root: Node, source: ContentSource) -> Platform | None:
    """The platform of the first program found, or None in a tree without programs."""
    for node in _list_programs(root):
        head = next(source.chunks(node), b"")[:20]
        platform = read_machine(head)
        if platform is not None:
            return platform
    return None


def _list_programs(root: Node) -> Iterator[Node]:
    for folder in _FOLDERS:
        place = find(root, folder)
        files = [n for _, n in place.sorted_children() if n.kind is Kind.FILE and n.size > 64] if place else []
        yield from [node for node in files if node.mode & 0o111][:_TRIES]


def read_machine(head: bytes) -> Platform | None:
    """The platform an ELF header is for; None for anything else."""
    if len(head) < 20 or not head.startswith(b"\x7fELF") or head[5] not in (1, 2):
        return None
    is_big = head[5] == 2
    name = _MACHINES.get(int.from_bytes(head[18:20], "big" if is_big else "little"), ("", ""))[is_big]
    return Platform.parse(name) if name else None
