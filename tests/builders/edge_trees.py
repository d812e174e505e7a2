# SPDX-License-Identifier: BSD-3-Clause
"""Generated trees that crowd at the edges of SquashFS: sizes around a block, equal contents, odd names, many files."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

from kedge.base.tree import Node, NodeKind
from tests.builders.squashfs_images import forge_checksum

CODECS = ("zstd", "zstd:1", "gzip:1", "lz4", "none")
SPECIALS = (NodeKind.SYMLINK, NodeKind.CHARACTER_DEVICE, NodeKind.BLOCK_DEVICE, NodeKind.FIFO, NodeKind.SOCKET)


@dataclass
class Plan:
    """A tree without contents, and its files with theirs in the order in which a writer gets them."""

    root: Node
    files: list[tuple[Node, bytes]]
    codec: str
    block_size: int


def plan_tree(seed: int) -> Plan:
    """Sizes at the edges of a block, equal files and ends, holes, odd names, links, and here and there many files."""
    chance = random.Random(seed)
    block_size = chance.choice((4096, 4096, 4096, 16384, 131072))
    root = Node(NodeKind.DIRECTORY, 0o755, 0, 0, 7)
    folders, files = [root], list[tuple[Node, bytes]]()
    for _ in range(chance.choice((0, 1, 3, 12))):
        chance.choice(folders).children[make_name(chance)] = folder = make_node(chance, NodeKind.DIRECTORY)
        folders.append(folder)
    contents = [b""]
    for folder in folders:
        is_many = chance.random() < 0.07
        for number in range(chance.choice((300, 1500)) if is_many else chance.choice((0, 1, 2, 9, 40))):
            name = b"%d" % number * chance.choice((1, 1, 9)) if is_many else make_name(chance)
            if not is_many and chance.random() < 0.1:
                folder.children[name] = make_special(chance)
            elif files and chance.random() < 0.02:
                folder.children[name] = chance.choice(files)[0]
            else:
                node = folder.children[name] = make_node(chance, NodeKind.FILE, is_usual=is_many)
                data = make_content(chance, contents, block_size, is_small=is_many)
                node.size = len(data)
                files.append((node, data))
    return Plan(root, files, chance.choice(CODECS), block_size)


def make_name(chance: random.Random) -> bytes:
    length = chance.choice((1, 3, 8, 20, 99, 100, 101, 255))
    name = bytes(chance.choices([byte for byte in range(1, 256) if byte != ord("/")], k=length))
    return name if name not in (b".", b"..") else b"x"


def make_node(chance: random.Random, kind: NodeKind, *, is_usual: bool = False) -> Node:
    if is_usual and chance.random() < 0.98:
        return Node(kind, chance.choice((0o644, 0o644, 0o755)), chance.choice((0, 0, 0, 33)), 0, chance.randrange(9))
    owner = chance.choice(((0, 0), (0, 0), (0, 0), (1000, 100), (100, 0), (chance.randrange(1 << 32), 5)))
    time = chance.choice((0, 1_700_000_000, 1_700_000_000, (1 << 32) - 1, 1 << 32, -1, chance.randrange(1 << 31)))
    node = Node(kind, chance.choice((0o644, 0o644, 0o755, 0o4711, 0o2755, 0o1777, 0)), *owner, time)
    if chance.random() < 0.03:
        known = ((b"user.a", b"1"), (b"security.capability", b"c" * 20), (b"system.posix_acl_access", b"left out"))
        node.xattrs = tuple(sorted(chance.sample(known, chance.randrange(1, 4))))
    return node


def make_special(chance: random.Random) -> Node:
    node = make_node(chance, chance.choice(SPECIALS))
    if node.kind is NodeKind.SYMLINK:
        node.target = b"t" * chance.choice((1, 99, 4095))
    elif node.kind in (NodeKind.CHARACTER_DEVICE, NodeKind.BLOCK_DEVICE):
        node.rdev = os.makedev(chance.randrange(1 << 12), chance.randrange(1 << 20))
    return node


def make_content(chance: random.Random, earlier: list[bytes], block: int, *, is_small: bool) -> bytes:
    """New, equal to an earlier one, or nearly so."""
    edges = (0, 1, 2, block // 2, block - 1, block, block + 1, 2 * block - 1, 2 * block, 3 * block + 7, 5 * block)
    size = chance.randrange(400) if is_small or chance.random() < 0.4 else chance.choice(edges)
    old = chance.choice(earlier)
    kind = chance.randrange(9)
    if kind == 0:
        data = old
    elif kind == 1:  # parts from an earlier one late, or ends as one
        data = old[:-1] + b"!" if chance.random() < 0.5 else b"?" + old[1:]
    elif kind == 2:
        data = bytes(size)
    elif kind == 3:  # holes at its beginning, within or at its end
        pieces = [chance.choice((bytes(block), b"x" * block)) for _ in range(-(-size // block))]
        data = b"".join(pieces)[:size]
    elif kind == 4:
        data = (b"kedge %d " % chance.randrange(50) * (size // 8 + 1))[:size]
    elif kind == 5 and len(old) > 4:  # another, whose first block has the checksum of an earlier one's
        data = forge_checksum(chance.randbytes(min(len(old), block) - 4), old[:block]) + old[block:]
    else:
        data = chance.randbytes(size)
    earlier.append(data)
    return data
