# SPDX-License-Identifier: BSD-3-Clause
"""An image becomes the same directory, straight from its file system or file by file, by one process or by several.

Trees are generated; each failure is named by its seed.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge.base.progress import Silent
from kedge.base.tree import Node, NodeKind, copy_tree
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from kedge.image.layers.sandbox import SandboxSink
from kedge.image.layers.unpack_squashfs import TreeExtractor, make_usable
from kedge.system.confined_paths import remove_tree
from tests.builders.edge_trees import Plan, plan_tree

LARGE = 129 << 20  # bytes of a file that several processes write, each a stretch


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_tree(tmp_path)  # pytest cannot remove read-only directories


def write_image(plan: Plan) -> bytes:
    file = io.BytesIO()
    with SquashWriter(file, SquashOptions(codec=plan.codec, block_size=plan.block_size)) as writer:
        for node, data in plan.files:
            node.content = writer.add(data)
        writer.finish(plan.root)
    return file.getvalue()


Way = Callable[[SquashReader, Path], None]


class JoinedSource:
    """Gives contents in chunks that are larger than what goes to a process at once."""

    def __init__(self, reader: SquashReader) -> None:
        self._reader = reader

    def chunks(self, node: Node) -> Iterator[bytes]:
        joined = b""
        for chunk in self._reader.chunks(node):
            joined += chunk
            if len(joined) > 700_000:
                yield joined
                joined = b""
        if joined:
            yield joined


def unpack_by_files(reader: SquashReader, target: Path, writers: int = 0) -> None:
    """As layers are: every content into a file of its own, which is then moved to its name."""
    with SandboxSink(target, writers=writers) as sink:
        tree = copy_tree(reader.read_tree(), JoinedSource(reader), sink)
        make_usable(tree)
        sink.finish(tree)


def unpack_by_writers(reader: SquashReader, target: Path) -> None:
    unpack_by_files(reader, target, writers=3)


def unpack_straight(reader: SquashReader, target: Path) -> None:
    TreeExtractor(reader, Silent(), lambda _: None, 1).extract(reader.read_tree(), target)


def unpack_straight_by_many(reader: SquashReader, target: Path) -> None:
    TreeExtractor(reader, Silent(), lambda _: None, 4).extract(reader.read_tree(), target)


def list_files(target: Path) -> dict[bytes, tuple[object, ...]]:
    """All that a directory has, with which names are one file."""
    firsts: dict[int, bytes] = {}
    found: dict[bytes, tuple[object, ...]] = {}
    pending = [os.fsencode(target)]
    while pending:
        path = pending.pop()
        status = os.lstat(path)
        names = os.listdir(path) if stat.S_ISDIR(status.st_mode) else []  # noqa: PTH208 - names are bytes
        pending += [path + b"/" + name for name in sorted(names, reverse=True)]
        short = path[len(os.fsencode(target)) :]
        attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in _list_attributes(path)}
        found[short] = (
            *(status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_rdev, attributes),
            *(firsts.setdefault(status.st_ino, short), _read(path)),
        )
    return found


def _list_attributes(path: bytes) -> list[str]:
    return sorted(name for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user."))


def _read(path: bytes) -> bytes:
    if os.path.islink(path):  # noqa: PTH114 - names are bytes
        return os.readlink(path)  # noqa: PTH115
    return Path(os.fsdecode(path)).read_bytes() if os.path.isfile(path) else b""  # noqa: PTH113


WAYS: list[Way] = [unpack_by_writers, unpack_straight, unpack_straight_by_many]


def compare(image: bytes, place: Path) -> list[str]:
    """The names of the ways that give another directory than the plain one."""
    different = []
    with SquashReader(io.BytesIO(image)) as reader:
        unpack_by_files(reader, place / "plain")
        expected = list_files(place / "plain")
        for way in WAYS:
            way(reader, place / way.__name__)
            if list_files(place / way.__name__) != expected:
                different.append(way.__name__)
    for folder in place.iterdir():
        remove_tree(folder)
    return different


@pytest.mark.timeout(300)
def test_images_unpack_to_the_files_of_the_plain_way(place: Path) -> None:
    different = []
    for seed in range(8):
        different += [(seed, way) for way in compare(write_image(plan_tree(seed)), place)]
    assert not different


@pytest.mark.timeout(300)
def test_large_files_unpack_to_those_of_the_plain_way(place: Path) -> None:
    """Files from what is handed over whole to what several processes write, with holes."""
    root, files = Node(NodeKind.DIRECTORY), list[tuple[Node, bytes]]()
    sizes = [size + more for size in (65536, 1 << 18, 1 << 20, 3 << 20) for more in (-1, 0, 1)]
    noise = os.urandom(3 << 20)
    contents = [noise[:size] for size in sizes] + [bytes(size) for size in sizes]
    contents.append(noise + bytes(LARGE) + noise[:77] + bytes(1 << 20))
    for number, data in enumerate(contents):
        node = root.children[b"%d" % number] = Node(NodeKind.FILE, 0o644, 0, 0, number)
        node.size = len(data)
        files.append((node, data))
    assert not compare(write_image(Plan(root, files, "zstd", 131072)), place)
