# SPDX-License-Identifier: BSD-3-Clause
"""Unpacking a SquashFS tree to a directory: the same files by one process and by several, in stretches and whole."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from kedge.base.progress import Silent
from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.errors import CorruptImage, HostileImage
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.layers.unpack_squashfs import TreeExtractor
from kedge.system.confined_paths import remove_tree
from tests.builders.squashfs_images import add_file, add_folder, mixed_bytes, write_image


def extract(data: bytes, target: Path, workers: int) -> tuple[Node, SquashReader, int]:
    reader = SquashReader(io.BytesIO(data))
    tree = reader.read_tree()
    total: list[int] = []
    TreeExtractor(reader, Silent(), total.append, workers).extract(tree, target)
    return tree, reader, sum(total)


def test_extract_reaches_paths_that_are_too_long_for_one_call(tmp_path: Path) -> None:
    def fill(sink: ContentSink) -> Node:
        root = folder = Node(NodeKind.DIRECTORY)
        for _ in range(30):
            folder = add_folder(folder, b"d" * 200)
        first = add_file(sink, folder, b"deep", b"down here")
        folder.children[b"twin"] = first
        return root

    target = tmp_path / "root"
    extract(write_image(fill), target, 2)
    folder = os.open(target, os.O_RDONLY)
    for _ in range(30):
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    for name in ("deep", "twin"):
        file = os.open(name, os.O_RDONLY, dir_fd=folder)
        assert os.read(file, 100) == b"down here"
        os.close(file)
    os.close(folder)
    remove_tree(target)


@pytest.mark.parametrize("workers", [1, 3])
def test_extract_of_damaged_contents_is_one_error(tmp_path: Path, workers: int) -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number in range(20):
            add_file(sink, add_folder(root, b"%d" % number), b"x", mixed_bytes(number, 200_000))
        return root

    data = bytearray(write_image(fill))
    data[96:160] = b"\xff" * 64  # where the first block begins
    with pytest.raises(CorruptImage, match="block"):
        extract(bytes(data), tmp_path / "root", workers)


def test_extract_refuses_names_that_lead_out(tmp_path: Path) -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        add_file(sink, root, b"fine", b"x")
        return root

    reader = SquashReader(io.BytesIO(write_image(fill)))
    tree = reader.read_tree()
    tree.children[b"../out"] = tree.children.pop(b"fine")
    with pytest.raises(HostileImage):
        TreeExtractor(reader, Silent(), lambda _: None).extract(tree, tmp_path / "root")
    assert not (tmp_path / "out").exists()
