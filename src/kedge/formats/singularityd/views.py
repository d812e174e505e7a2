# SPDX-License-Identifier: BSD-3-Clause
"""The files of an image by path, from a directory or a file tree; links are followed inside the image only."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from kedge.errors import CorruptImage
from kedge.model.tree import ContentSource, Node, NodeKind
from kedge.posix.files import explain, explained

_MAXIMUM_FILE = 16 << 20  # scripts and labels; real ones have a few kB
_LINK_HOPS = 40  # the kernel's own limit
Parts = tuple[str, ...]


def resolve_inside(path: str, read_link: Callable[[Parts], str | None]) -> Parts | None:
    """The path's parts with all links followed as if the image's root were `/`; None after too many links."""
    done: list[str] = []
    waiting = path.split("/")[::-1]
    hops = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done[-1:] = []
            continue
        target = read_link((*done, part))
        if target is None:
            done.append(part)
            continue
        hops += 1
        if hops > _LINK_HOPS:
            return None
        if target.startswith("/"):
            done.clear()
        waiting.extend(target.split("/")[::-1])
    return tuple(done)


def _decode(data: bytes, path: str) -> str:
    if len(data) > _MAXIMUM_FILE:
        raise CorruptImage(f"{path} in the image has more than {_MAXIMUM_FILE} bytes; it cannot be what its name says")
    return data.decode("utf-8", "replace")


class TreeView:
    """The tree of an image: `lookup` gives the node at a path, directories with their children, links not followed."""

    def __init__(self, lookup: Callable[[bytes], Node | None], source: ContentSource) -> None:
        self._lookup = lookup
        self._source = source
        self._known: dict[Parts, Node | None] = {}

    def read_text(self, path: str) -> str | None:
        """The text of a regular file, or None."""
        node = self._resolve(path)
        if node is None or node.kind is not NodeKind.FILE:
            return None
        data = b""
        if node.size:
            chunks = self._source.chunks(node)
            while len(data) <= _MAXIMUM_FILE and (chunk := next(chunks, b"")):
                data += chunk
        return _decode(data, path)

    def list_names(self, path: str) -> list[str]:
        """The sorted names in a directory."""
        node = self._resolve(path)
        return sorted(map(os.fsdecode, node.children)) if node is not None else []

    def _resolve(self, path: str) -> Node | None:
        parts = resolve_inside(path, self._read_link)
        return None if parts is None else self._find(parts)

    def _find(self, parts: Parts) -> Node | None:
        if parts not in self._known:
            self._known[parts] = self._lookup(b"/".join(map(os.fsencode, parts)))
        return self._known[parts]

    def _read_link(self, parts: Parts) -> str | None:
        node = self._find(parts)
        return os.fsdecode(node.target) if node is not None and node.kind is NodeKind.SYMLINK else None


class FolderView:
    """A sandbox directory on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_text(self, path: str) -> str | None:
        """The text of a regular file, or None."""
        target = self._resolve(path)
        if target is None:
            return None
        try:
            # a pipe in the directory must not make us wait, nor a link that appears meanwhile lead us out
            handle = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            if problem.errno in (errno.ELOOP, errno.ENXIO):  # a link after all, or a socket
                return None
            raise explain(problem, target) from problem
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            return _decode(file.read(_MAXIMUM_FILE + 1), path)

    def list_names(self, path: str) -> list[str]:
        """The sorted names in a directory."""
        target = self._resolve(path)
        if target is None or not target.is_dir():
            return []
        with explained(target):
            return sorted(child.name for child in target.iterdir())

    def _resolve(self, path: str) -> Path | None:
        parts = resolve_inside(path, self._read_link)
        return None if parts is None else self._root.joinpath(*parts)

    def _read_link(self, parts: Parts) -> str | None:
        try:
            return str(self._root.joinpath(*parts).readlink())
        except OSError:  # not a link, or not there
            return None
