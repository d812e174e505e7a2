# SPDX-License-Identifier: BSD-3-Clause
"""File capabilities as images have them: those that root of a user namespace sets name the user who stands behind it.

The kernel stores them with that user's number (revision 3 of struct vfs_cap_data, linux/capability.h), which means
nothing on another host. In an image they are those of root (revision 2), as setcap writes them there.
"""

from __future__ import annotations

from kedge.base.tree import Node

_ATTRIBUTE = b"security.capability"
_REVISION_2, _REVISION_3 = b"\x02", b"\x03"  # the highest byte of the first word, which is little-endian
_LENGTH_2, _LENGTH_3 = 20, 24


def make_capability_general(node: Node) -> None:
    """Let the file's capabilities, if it has any, be root's and not those of one user's root."""
    if any(key == _ATTRIBUTE for key, _ in node.xattrs):
        node.xattrs = tuple((key, _generalise(value) if key == _ATTRIBUTE else value) for key, value in node.xattrs)


def _generalise(value: bytes) -> bytes:
    if len(value) != _LENGTH_3 or value[3:4] != _REVISION_3:
        return value
    return value[:3] + _REVISION_2 + value[4:_LENGTH_2]
