# SPDX-License-Identifier: BSD-3-Clause
"""File capabilities lose the number of the user who built the image."""

from __future__ import annotations

from kedge.base.tree import Node, NodeKind
from kedge.image.layers.upper_directory import make_capability_general

BODY = b"\x00\x20" + bytes(14)


def test_capabilities_of_one_users_root_become_those_of_root() -> None:
    node = Node(NodeKind.FILE, 0o755)
    other = (b"user.note", b"\x01\x00\x00\x03" + BODY + b"\xe3\x05\x00\x00")
    node.xattrs = ((b"security.capability", b"\x01\x00\x00\x03" + BODY + b"\xe3\x05\x00\x00"), other)
    make_capability_general(node)
    assert node.xattrs == ((b"security.capability", b"\x01\x00\x00\x02" + BODY), other)


def test_other_capabilities_stay() -> None:
    for value in (b"\x01\x00\x00\x02" + BODY, b"", b"\x01\x00\x00\x03", b"\x00" * 24):
        node = Node(NodeKind.FILE, 0o755)
        node.xattrs = ((b"security.capability", value),)
        make_capability_general(node)
        assert node.xattrs == ((b"security.capability", value),)
