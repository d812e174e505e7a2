# SPDX-License-Identifier: BSD-3-Clause
"""Readers of SquashFS images that tell what they see in the words of `judged_trees.scan_tree`, for comparing them.

unsquashfs and the kernel need root (owners, devices, mounts), squashfuse /dev/fuse; kedge's own reader needs nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge.base.tree import ContentSource, Node, NodeKind, walk
from kedge.errors import KedgeError
from kedge.image.formats.squashfs.reader import SquashReader
from tests.builders.generated_trees import Tree, count_holes
from tests.builders.judged_trees import Seen, scan_tree
from tests.requirements import require_program, require_root

TYPES = {
    NodeKind.DIRECTORY: stat.S_IFDIR, NodeKind.FILE: stat.S_IFREG, NodeKind.SYMLINK: stat.S_IFLNK,
    NodeKind.BLOCK_DEVICE: stat.S_IFBLK, NodeKind.CHARACTER_DEVICE: stat.S_IFCHR,
    NodeKind.FIFO: stat.S_IFIFO, NodeKind.SOCKET: stat.S_IFSOCK,
}  # fmt: skip
DECORATION = re.compile(  # what a container needs besides what the layers have
    rb"(\.singularity\.d(/.*)?|\.exec|\.run|\.shell|\.test|environment|singularity|dev|proc|root|sys|home|tmp|var|var/tmp"
    rb"|etc|etc/hosts|etc/resolv\.conf)\Z"
)
PATIENCE = 60  # seconds that a reader may take for a small image; a broken one can keep it for ever
Reader = Callable[[Path, Path], Seen]  # the image, an empty place


class Unreadable(Exception):
    """A reader refused an image."""


def find_differences(found: Seen, wanted: Seen, most: int = 6) -> list[str]:
    """The first differences, one to a line."""
    wrong = [f"{name!r} is not there" for name in wanted if name not in found]
    wrong += [f"{name!r} is there besides" for name in found if name not in wanted]
    wrong += [
        f"{name!r}: {one!r} where {other!r} belongs"
        for name in wanted
        if name in found
        for one, other in zip(found[name], wanted[name], strict=True)
        if one != other
    ]
    return wrong[:most]


def _run(*argv: str | Path) -> bytes:
    try:
        done = subprocess.run(argv, capture_output=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Unreadable(f"{argv[0]} hangs") from None
    if done.returncode:
        raise Unreadable(f"{argv[0]} fails with {done.returncode}: {(done.stderr or done.stdout)[-300:]!r}")
    return done.stdout + done.stderr


def see_by_unsquashfs(image: Path, place: Path, *options: str) -> Seen:
    """What unsquashfs extracts; it must have nothing to say."""
    require_root()
    target = place / "extracted"
    try:
        said = _run(require_program("unsquashfs"), *options, "-no-progress", "-quiet", "-d", target, image)
        if said:
            raise Unreadable(f"unsquashfs says {said[-300:]!r}")
        return scan_tree(target)
    finally:
        shutil.rmtree(target, ignore_errors=True)


@contextlib.contextmanager
def mounted(image: Path, place: Path, *command: str | Path) -> Iterator[Path]:
    """An image mounted by a command; the kernel does it where none is given."""
    point = place / "mounted"
    point.mkdir()
    try:
        _run(*(command or (require_program("mount"), "-t", "squashfs", "-o", "loop,ro")), image, point)
        try:
            yield point
        finally:
            root = os.geteuid() == 0
            _run(*((require_program("umount"),) if root else (require_program("fusermount3"), "-u")), point)
    finally:
        point.rmdir()


def see_by_kernel(image: Path, place: Path, tree: Tree | None = None, block: int = 0) -> Seen:
    """What the kernel shows; with a tree also whether holes take no room, and files are found by their names."""
    require_root()
    with mounted(image, place) as point:
        try:
            seen = scan_tree(point)
        except OSError as problem:
            raise Unreadable(f"the kernel: {problem}") from problem
        for path, thing in (tree or {}).items():
            status = os.lstat(os.fsencode(point) + b"/" + path)
            if thing.data and not thing.xattrs:  # the kernel counts attributes as blocks, too
                stored = len(thing.data) - min(count_holes(thing, block), len(thing.data) - 1)
                if status.st_blocks != -(-stored // 512):
                    seen[path] = (*seen[path][:-1], f"{status.st_blocks} blocks instead of {-(-stored // 512)}")
        return seen


def see_by_squashfuse(image: Path, place: Path) -> Seen:
    """What squashfuse shows, without what some of its releases get wrong: attributes, and which names are one file."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse")
    with mounted(image, place, require_program("squashfuse")) as point:
        try:
            return leave_out_links(scan_tree(point, xattrs=False))
        except OSError as problem:
            raise Unreadable(f"squashfuse: {problem}") from problem


def leave_out_links(seen: Seen) -> Seen:
    """A picture without attributes and without which names are one file."""
    return {name: (*each[:7], each[9]) for name, each in seen.items()}


def see_by_kedge(image: Path, threads: int = 1) -> Seen:
    """What kedge's own reader finds."""
    try:
        with image.open("rb") as file, SquashReader(file, threads=threads) as reader:
            return see_nodes(reader.read_tree(), reader)
    except KedgeError as problem:
        raise Unreadable(f"kedge: {problem}") from problem


def see_nodes(root: Node, source: ContentSource) -> Seen:
    """A tree of nodes in the words of `scan_tree`."""
    names: dict[int, list[bytes]] = {}
    nodes = [(b"", root), *walk(root)]
    for name, node in nodes:
        names.setdefault(id(node), []).append(name)
    return {name: _describe(name, node, min(names[id(node)]), len(names[id(node)]), source) for name, node in nodes}


def _describe(name: bytes, node: Node, first: bytes, count: int, source: ContentSource) -> tuple[object, ...]:
    is_folder = node.kind is NodeKind.DIRECTORY
    content = node.target
    if node.kind is NodeKind.FILE:
        content = hashlib.sha256(b"".join(source.chunks(node))).digest()
    size = None if is_folder else len(node.target) if node.kind is NodeKind.SYMLINK else node.size
    links = 2 + sum(child.kind is NodeKind.DIRECTORY for child in node.children.values()) if is_folder else count
    return (
        oct(TYPES[node.kind] | node.mode),
        node.uid,
        node.gid,
        node.mtime,
        node.rdev,
        size,
        links,
        name if is_folder else first,
        tuple((os.fsdecode(key), value) for key, value in node.xattrs),
        content,
    )
