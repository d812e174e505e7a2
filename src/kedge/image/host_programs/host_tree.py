# SPDX-License-Identifier: BSD-3-Clause
"""A file tree filled with files of this host, at the paths they have here.

Symbolic links on the way are kept as links and what they lead to is added, so `/lib -> usr/lib` and `libx.so.1 ->
libx.so.1.2` stay as they are. Owners become root, set-user bits go, times of directories follow their content: the same
files give the same tree. Nothing under the user's home is taken unless it was named.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator

from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.errors import FileProblem
from kedge.system.files import explain, explained
from kedge.system.host.private_places import find_homes
from kedge.system.views import follow_links

_SMALL = 128 << 10
_LATEST = (1 << 32) - 1  # SquashFS keeps 32 bits


class HostTree:
    """The tree being built. Adding a path twice does nothing."""

    def __init__(self, sink: ContentSink) -> None:
        self.root = Node(NodeKind.DIRECTORY, 0o755)
        self._nodes = {"": self.root}  # by path, with no link in it
        self.files = 0
        self.packed: set[str] = set()  # every path added, links too, as it was asked for
        self._sink = sink
        self._inodes: dict[tuple[int, int], Node] = {}
        self._homes = find_homes()
        self._allowed: list[str] = []

    def allow(self, path: str) -> None:
        """Let a file, or what is below a directory, be taken even from the user's home; never a whole home."""
        for place in {path.rstrip("/") + "/", os.path.realpath(path).rstrip("/") + "/"}:
            if not any(home.startswith(place) for home in self._homes):
                self._allowed.append(place)

    def is_private(self, path: str) -> bool:
        """Whether the path is in the user's home and was not named."""
        inside = any(path.startswith(home) for home in self._homes)
        return inside and not any((path + "/").startswith(folder) for folder in self._allowed)

    def add(self, path: str) -> str:
        """Add a file or directory (without its content) and all links on the way; returns the path behind the links."""
        self.packed.add(path)
        real = self._follow(path, self._add_name)
        self.packed.add(real)
        return real

    def add_folder(self, path: str, skip: Callable[[str], bool], visit: Callable[[str], None] | None = None) -> None:
        """Add everything below a directory; `skip` sees full paths, `visit` is called for every regular file."""
        stack = [self.add(path)]
        seen = set(stack)
        while stack:
            folder = stack.pop()
            for name in self._list(folder):
                place = f"{folder}/{name}"
                if skip(place) or self.is_private(place):
                    continue
                kind = self._kind(place)
                if kind is None:
                    continue
                real = self.add(place)
                if kind is NodeKind.DIRECTORY and real not in seen:
                    seen.add(real)
                    stack.append(real)
                elif kind is NodeKind.FILE and visit is not None:
                    visit(place)

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file of our own making in place, unless there is one."""
        parent = self.make_folder(os.path.dirname(path))  # noqa: PTH120
        name = os.fsencode(os.path.basename(path))  # noqa: PTH119
        if name in parent.children:
            return
        node = Node(NodeKind.FILE, mode)
        node.size, node.content = len(data), self._sink.add(data) if data else None
        parent.children[name] = node
        self.packed.add(path)
        self.files += 1

    def make_folder(self, path: str, mode: int = 0o755) -> Node:
        """The directory at `path`, made when missing; links on the way are followed inside the tree."""
        node = self._nodes[self._follow(path, self._make_name)]
        if mode != 0o755:
            node.mode = mode
        return node

    def finish(self) -> Node:
        """The tree, with the time of each directory that of the newest entry in it."""
        _date_folders(self.root)
        return self.root

    def _follow(self, path: str, read_link: Callable[[str], str | None]) -> str:
        """The path behind the links; `read_link` puts every name on the way into the tree."""
        try:
            return follow_links(path, read_link).rstrip("/")
        except OSError as problem:
            if problem.errno != errno.ELOOP:  # of the image that is being written: a full disk
                raise
            raise FileProblem(f"{path}: too many levels of symbolic links") from None

    def _add_name(self, path: str) -> str | None:
        """Add what this host has at a path whose parent is in the tree; returns a link's target."""
        parent, _, name = path.rpartition("/")
        children = self._nodes[parent].children
        node = children.get(os.fsencode(name))
        if node is None:
            if self._nodes[parent].kind is not NodeKind.DIRECTORY:
                raise FileProblem(f"{path}: a part of this path is a file, not a directory")
            node = children[os.fsencode(name)] = self._copy_entry(path)
        return self._note(path, node)

    def _make_name(self, path: str) -> str | None:
        """Make a directory at a path whose parent is in the tree, unless there is one; returns a link's target."""
        parent, _, name = path.rpartition("/")
        node = self._nodes[parent].children.setdefault(os.fsencode(name), Node(NodeKind.DIRECTORY, 0o755))
        if node.kind not in (NodeKind.DIRECTORY, NodeKind.SYMLINK):
            raise FileProblem(f"{path} is not a directory")
        return self._note(path, node)

    def _note(self, path: str, node: Node) -> str | None:
        self._nodes[path] = node
        return os.fsdecode(node.target) if node.kind is NodeKind.SYMLINK else None

    def _copy_entry(self, path: str) -> Node:
        try:
            status = os.lstat(path)
        except OSError as problem:
            raise explain(problem, path) from problem
        node = self._inodes.get((status.st_dev, status.st_ino)) if stat.S_ISREG(status.st_mode) else None
        return self._make_node(path, status) if node is None else node

    def _make_node(self, path: str, status: os.stat_result) -> Node:
        mtime = min(max(int(status.st_mtime), 0), _LATEST)
        if stat.S_ISDIR(status.st_mode):
            return Node(NodeKind.DIRECTORY, (status.st_mode & 0o777) | 0o555)
        if stat.S_ISLNK(status.st_mode):
            node = Node(NodeKind.SYMLINK, 0o777, mtime=mtime)
            with explained(path):
                node.target = os.fsencode(os.readlink(path))  # noqa: PTH115 - Path would tidy the target up
            return node
        if not stat.S_ISREG(status.st_mode):
            raise FileProblem(f"{path} is neither a file nor a directory nor a link: kedge cannot pack it")
        if self.is_private(path):
            raise FileProblem(
                f"{path} is in your home directory; kedge packs files from there only if you name them",
                hint=f"name it by its full path: host:{path}",
            )
        executable = 0o111 if status.st_mode & 0o111 else 0
        node = Node(NodeKind.FILE, (status.st_mode & 0o755) | 0o444 | executable, mtime=mtime)
        node.size = status.st_size
        node.content = self._store(path, status.st_size)
        self.files += 1
        if status.st_nlink > 1:
            self._inodes[status.st_dev, status.st_ino] = node
        return node

    def _store(self, path: str, size: int) -> object:
        if size == 0:
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as problem:
            raise explain(problem, path) from problem
        try:
            chunks = _read_exactly(descriptor, size, path)
            return self._sink.add(b"".join(chunks)) if size <= _SMALL else self._sink.add_stream(size, chunks)
        finally:
            os.close(descriptor)

    def _list(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
        except OSError as problem:
            raise explain(problem, folder) from problem

    def _kind(self, path: str) -> NodeKind | None:
        """Directory or file, behind links; None for broken links, special files and links into a home."""
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116 - called for every file
        except OSError:
            return None
        if self.is_private(os.path.realpath(path)):
            return None
        return NodeKind.DIRECTORY if stat.S_ISDIR(mode) else NodeKind.FILE if stat.S_ISREG(mode) else None


def _read_exactly(descriptor: int, size: int, path: str) -> Iterator[bytes]:
    done = 0
    while done < size:
        with explained(path):
            piece = os.read(descriptor, min(1 << 20, size - done))
        if not piece:
            raise FileProblem(
                f"{path} was truncated while kedge read it", hint="try again when no program writes to it"
            )
        done += len(piece)
        yield piece


def _date_folders(root: Node) -> None:
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(child for child in node.children.values() if child.kind is NodeKind.DIRECTORY)
    for folder in reversed(order):
        folder.mtime = max((child.mtime for child in folder.children.values()), default=0)
