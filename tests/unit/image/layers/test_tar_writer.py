# SPDX-License-Identifier: BSD-3-Clause
"""The tar writer: read back by ourselves, by Python's tarfile and by GNU tar; always the same bytes."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile

import pytest

from kedge.base.tree import Node, NodeKind
from kedge.errors import CorruptImage, InvalidSetting, UnsupportedFormat
from kedge.image.formats.compression.streams import inflate
from kedge.image.layers.flatten import flatten
from kedge.image.layers.tar_writer import write_layer
from tests.builders.layers import MemorySink, describe, sources
from tests.builders.rows import each_row

LONG = b"n" * 90 + b"/" + b"m" * 90
VERY_LONG = b"/".join([b"x" * 200] * 5)


def put(root: Node, path: bytes, node: Node) -> Node:
    *parents, name = path.split(b"/")
    for part in parents:
        root = root.children.setdefault(part, Node(NodeKind.DIRECTORY, 0o711, 5, 6, 7))
    root.children[name] = node
    return node


def make_file(data: bytes, *, mode: int = 0o644, uid: int = 0, gid: int = 0, mtime: int = 0) -> Node:
    node = Node(NodeKind.FILE, mode, uid, gid, mtime)
    node.size, node.content = len(data), data or None
    return node


def make_tree() -> Node:
    root = Node(NodeKind.DIRECTORY, 0o750, 1, 2, 3)
    plain = put(root, b"etc/plain", make_file(b"text", mode=0o4755, uid=10, gid=20, mtime=30))
    put(root, b"etc/again", plain)
    put(root, LONG, make_file(b"long"))
    put(root, VERY_LONG, make_file(b"very long"))
    put(root, "umlaut-ä".encode(), make_file(b"u"))
    put(root, b"raw-\xff\xfe", make_file(b"raw"))
    put(root, b"huge-ids", make_file(b"", uid=4_000_000_000, gid=3_000_000_000, mtime=-5))
    put(root, b"late", make_file(b"", mtime=1 << 40))
    put(root, b"big", make_file(bytes(range(256)) * 2000))
    link = put(root, b"link", Node(NodeKind.SYMLINK, 0o777))
    link.target = b"t" * 300
    put(root, b"same-link", link)
    put(root, b"pipe", Node(NodeKind.FIFO, 0o600))
    put(root, b"null", Node(NodeKind.CHARACTER_DEVICE, 0o666)).rdev = os.makedev(1, 3)
    put(root, b"disk", Node(NodeKind.BLOCK_DEVICE, 0o660)).rdev = os.makedev(259, 1048575)
    put(root, b"caps", make_file(b"c")).xattrs = (
        (b"security.capability", bytes(20)),
        (b"user.empty", b""),
        (b"user.x=y z", b"a\nb"),
    )
    put(root, b"empty-folder", Node(NodeKind.DIRECTORY, 0o1777))
    return root


def write(root: Node, compression: str = "none") -> bytes:
    out = io.BytesIO()
    result = write_layer(root, MemorySink(), out, compression)
    blob = out.getvalue()
    tar = b"".join(inflate([blob], where="test"))
    assert result.size == len(blob)
    assert result.digest.hex == hashlib.sha256(blob).hexdigest()
    assert result.diff_id.hex == hashlib.sha256(tar).hexdigest()
    return blob


def test_writer_and_reader_agree_on_everything() -> None:
    tree = make_tree()
    tar = write(tree)
    again = flatten(sources(tar), MemorySink())
    assert describe(again) == describe(tree)


def test_writer_leaves_sockets_out() -> None:
    root = Node(NodeKind.DIRECTORY)
    put(root, b"sock", Node(NodeKind.SOCKET))
    with tarfile.open(fileobj=io.BytesIO(write(root))) as archive:
        assert archive.getnames() == ["."]


def test_writer_refuses_files_that_a_layer_would_turn_into_deletions() -> None:
    root = Node(NodeKind.DIRECTORY)
    put(root, b"d/.wh.x", make_file(b"1"))
    with pytest.raises(UnsupportedFormat, match=r"'d/\.wh\.x'"):
        write(root)


def test_writer_refuses_a_source_that_gives_another_size() -> None:
    root = Node(NodeKind.DIRECTORY)
    put(root, b"f", make_file(b"12345")).size = 6
    with pytest.raises(CorruptImage, match="'f' has 5 bytes instead of 6"):
        write(root)


def test_writer_refuses_an_unknown_compression() -> None:
    with pytest.raises(InvalidSetting):
        write(Node(NodeKind.DIRECTORY), "rar")


def make_layer_tree() -> Node:
    root = Node(NodeKind.DIRECTORY, 0o755, mtime=99)
    root.layer = -1
    put(root, b"etc/.wh.gone", make_file(b""))
    put(root, b"new/.wh..wh..opq", make_file(b""))
    put(root, b"new/file", make_file(b"content", mtime=2_000_000_000))
    return root


def test_writer_a_layer_above_others_holds_deletions_and_not_its_root() -> None:
    out = io.BytesIO()
    result = write_layer(make_layer_tree(), MemorySink(), out, "none", holds_whiteouts=True)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        assert archive.getnames() == ["etc", "etc/.wh.gone", "new", "new/.wh..wh..opq", "new/file"]
    golden = "52ce62e8b6ec888c368d6fc673e32fbcdec9042c0d1d6089d3bd166de874b65a"
    assert result.diff_id.hex == golden
    listed = subprocess.run(["tar", "-t"], input=out.getvalue(), capture_output=True, check=True).stdout
    assert listed.split() == [b"etc/", b"etc/.wh.gone", b"new/", b"new/.wh..wh..opq", b"new/file"]


def test_writer_a_root_that_was_changed_is_written() -> None:
    root = make_layer_tree()
    root.layer = 0
    out = io.BytesIO()
    write_layer(root, MemorySink(), out, "none", holds_whiteouts=True)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        assert archive.getnames()[0] == "."


def test_writer_no_time_is_later_than_the_epoch() -> None:
    out = io.BytesIO()
    write_layer(make_layer_tree(), MemorySink(), out, "none", holds_whiteouts=True, epoch=1_700_000_000)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        times = {member.name: member.mtime for member in archive}
    assert times["new/file"] == 1_700_000_000
    assert times["etc"] == 7


@each_row("compression", ["zstd", "gzip"])
def test_writer_layers_of_builds_have_the_same_bytes_twice(compression: str) -> None:
    outs = []
    for _ in range(2):
        out = io.BytesIO()
        write_layer(make_layer_tree(), MemorySink(), out, compression, holds_whiteouts=True)
        outs.append(out.getvalue())
    assert outs[0] == outs[1]
