# SPDX-License-Identifier: BSD-3-Clause
"""Inodes of small files in bulk: columns of words instead of one record after the other.

A file in a fragment block, with one name and no attributes, has an inode of eight words of 32 bits. Most files of most
images are such ones, so their columns are filled by loops in C. The bytes are those that `BASIC_FILE` would pack.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping

from kedge.base.tree import Node
from kedge.image.formats.squashfs.layout import LAST_TIME

SIZE = 32  # of each inode
OFFSET_SHIFT = 32  # a token is offset << 32 | fragment: two words of the inode, in their order
_FRAGMENT_MASK = (1 << OFFSET_SHIFT) - 1
_WORDS = 8
_FRAGMENT, _OFFSET = (0, 1) if sys.byteorder == "little" else (1, 0)  # halves of a token


def split_token(token: int) -> tuple[int, int]:
    """The fragment where a file's content is, and the offset in it."""
    return token & _FRAGMENT_MASK, token >> OFFSET_SHIFT


def find_others(nodes: list[Node]) -> list[int]:
    """Places of nodes that have other inodes."""
    return [
        place
        for place, node in enumerate(nodes)
        if type(node.content) is not int or node.xattrs or not 0 <= node.mtime <= LAST_TIME
    ]


def pack_all_small(nodes: list[Node], number: int, ids: Mapping[int, int]) -> bytes:
    """Pack inodes as `pack_small`; empty where a node has another inode, which is found at less than `find_others`."""
    if any([node.xattrs for node in nodes]):
        return b""
    try:
        return pack_small(nodes, number, ids)
    except (TypeError, OverflowError):  # a content that is no token, a time that does not fit
        return b""


def pack_small(nodes: list[Node], number: int, ids: Mapping[int, int]) -> bytes:
    """Inodes of small files alone, numbered from `number` on; new owners go into `ids` in the order of the nodes.

    Raises TypeError or OverflowError, before anything goes into `ids`, where a file is no small one.
    """
    count, first = len(nodes), nodes[0]
    tokens: list[int] = [node.content for node in nodes]  # type: ignore[misc]  # of small files: numbers
    places = array("I", array("Q", tokens).tobytes())
    times = array("I", [node.mtime for node in nodes])
    mode, user, group = first.mode, first.uid, first.gid
    words = array("I", [2 | (mode & 0o7777) << 16, ids[user] | ids[group] << 16, 0, 0, 0, 0, 0, 0]) * count
    if not all([node.mode == mode and node.uid == user and node.gid == group for node in nodes]):
        words[0::_WORDS] = array("I", [2 | (node.mode & 0o7777) << 16 for node in nodes])
        words[1::_WORDS] = array("I", [ids[node.uid] | ids[node.gid] << 16 for node in nodes])
    words[2::_WORDS] = times
    words[3::_WORDS] = array("I", list(range(number, number + count)))  # from a list: other iterables cost more
    words[5::_WORDS] = places[_FRAGMENT::2]
    words[6::_WORDS] = places[_OFFSET::2]
    words[7::_WORDS] = array("I", [node.size for node in nodes])
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
