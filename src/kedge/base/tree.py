# SPDX-License-Identifier: BSD-3-Clause
"""The file tree of an image: what layers are flattened into and what every writer consumes.

A `Node` has no name: the parent's `children` holds names, as bytes, because file names are bytes. One `Node` under
several names is a hard link. The bytes of a regular file are not in the tree: `Node.content` is whatever the
`ContentSink` that took them returned (block addresses, a spool file), or what a `ContentSource` can read again.
Nodes are mutable while a tree is being built and must not be changed once handed to a writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Protocol

Buffer = bytes | bytearray | memoryview
Xattrs = tuple[tuple[bytes, bytes], ...]


class NodeKind(IntEnum):
    """File types; the values are SquashFS's basic inode types."""

    DIRECTORY = 1
    FILE = 2
    SYMLINK = 3
    BLOCK_DEVICE = 4
    CHARACTER_DEVICE = 5
    FIFO = 6
    SOCKET = 7


class Node:
    """One inode: metadata, and by kind children, content, a link target or a device number."""

    __slots__ = (
        "children",
        "content",
        "gid",
        "kind",
        "layer",
        "mode",
        "mtime",
        "nanoseconds",
        "rdev",
        "size",
        "target",
        "uid",
        "xattrs",
    )

    def __init__(self, kind: NodeKind, mode: int = 0o755, uid: int = 0, gid: int = 0, mtime: int = 0) -> None:
        self.kind = kind
        self.mode = mode  # permission bits with setuid, setgid and sticky: 0o7777
        self.uid = uid
        self.gid = gid
        self.mtime = mtime  # whole seconds
        self.nanoseconds = 0  # of the time, which only directories on disk can hold
        self.xattrs: Xattrs = ()  # full names ("security.capability"), sorted by name
        self.size = 0  # of a regular file
        self.content: object = None  # of a regular file; None when it is empty
        self.target = b""  # of a symbolic link
        self.rdev = 0  # of a device, as os.makedev gives it
        self.children: dict[bytes, Node] = {} if kind is NodeKind.DIRECTORY else _NO_CHILDREN
        self.layer = 0  # index of the layer it came from; -1 for a parent that no layer named

    def sorted_children(self) -> list[tuple[bytes, Node]]:
        """Children in byte order of their names, the order every writer uses."""
        return sorted(self.children.items())


_NO_CHILDREN: dict[bytes, Node] = {}  # shared by all nodes that are no directories; never written to


class ContentSink(Protocol):
    """Takes the bytes of regular files and returns a token to keep in `Node.content`."""

    def add(self, data: Buffer) -> object:
        """Take a whole, small file. `data` may be reused by the caller after the call returns."""
        ...

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        """Take a file of `size` bytes; the chunks add up to exactly that, each valid until the next is asked for."""
        ...


class ContentSource(Protocol):
    """Gives the bytes of regular files back, for trees that were read from an image or directory."""

    def chunks(self, node: Node) -> Iterator[bytes]:
        """The content of a regular file in order; the pieces add up to `node.size`."""
        ...


def walk(root: Node) -> Iterator[tuple[bytes, Node]]:
    """Every path below `root` with its node, parents first, names in byte order; paths have no leading slash."""
    stack: list[tuple[bytes, Node]] = [(b"", root)]
    while stack:
        path, node = stack.pop()
        if path:
            yield path, node
        if node.children:
            prefix = path + b"/" if path else b""
            stack.extend((prefix + name, child) for name, child in sorted(node.children.items(), reverse=True))


def find(root: Node, path: bytes) -> Node | None:
    """The node at `path` without following symbolic links, or None."""
    node = root
    for part in path.split(b"/"):
        if part in (b"", b"."):
            continue
        child = node.children.get(part)
        if child is None:
            return None
        node = child
    return node


def copy_tree(root: Node, source: ContentSource, sink: ContentSink) -> Node:
    """Return a copy of a tree with every file's bytes given to `sink`; hard links stay hard links.

    Files are handed over in a fixed order, so that equal trees give the sink the same bytes in the same order.
    """
    copies: dict[int, Node] = {id(root): copy_node(root)}
    stack = [root]
    while stack:
        folder = stack.pop()
        names = copies[id(folder)].children
        for name, node in sorted(folder.children.items()):
            if id(node) not in copies:
                copy = copies[id(node)] = copy_node(node)
                if node.kind is NodeKind.FILE and node.size:
                    copy.content = sink.add_stream(node.size, source.chunks(node))
            names[name] = copies[id(node)]
        stack.extend(node for _, node in sorted(folder.children.items(), reverse=True) if node.children)
    return copies[id(root)]


def copy_node(node: Node) -> Node:
    """Return a copy of a node's metadata, without content and children."""
    copy = Node(node.kind, node.mode, node.uid, node.gid, node.mtime)
    copy.xattrs, copy.size, copy.target, copy.rdev, copy.layer, copy.nanoseconds = (
        node.xattrs,
        node.size,
        node.target,
        node.rdev,
        node.layer,
        node.nanoseconds,
    )
    return copy
