# SPDX-License-Identifier: BSD-3-Clause
"""Puts a layer onto a directory: what it deletes goes, what it has replaces what was there.

For hosts where no overlay can be had. As in a sandbox nothing is followed: every directory is opened by its
descriptor, and a link in the place of a directory that the layer names is replaced.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kedge.base.tree import Node
from kedge.errors import HostileImage
from kedge.image.layers.content_spool import ContentSpool
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.layer_tree import is_whiteout, read_layer_tree
from kedge.image.layers.limits import FlattenOptions
from kedge.image.layers.member_names import show_name
from kedge.image.layers.privileges import choose_privileges
from kedge.image.layers.sandbox import TreeBuilder
from kedge.image.layers.whiteouts import OPAQUE_MARK, is_opaque
from kedge.system.confined_paths import open_writable, remove_entry
from kedge.system.files import explained


def apply_layer(folder: Path, layer: LayerSource, options: FlattenOptions | None = None) -> Node:
    """Change the directory tree `folder` as the layer says; returns the layer's tree, without contents.

    Raises what `flatten` raises. After an error the tree is of no use: a part of the layer may be in it.
    """
    options = options or FlattenOptions()
    with ContentSpool(folder) as spool:
        root = read_layer_tree(layer, spool, options)
        with explained(folder):
            if root.layer < 0:
                _keep_metadata(root, folder.stat())
            _MergingBuilder(spool.place, choose_privileges(options.progress), root).build(folder, root)
    return root


class _MergingBuilder(TreeBuilder):
    """Builds onto what is there."""

    def open_folder(self, folder: int, name: bytes, node: Node) -> int:
        """Enter a directory, which its mode may forbid, and empty it where the layer hides what was there."""
        opened = open_writable(folder, name)
        if is_opaque(node):
            for entry in os.listdir(opened):  # noqa: PTH208 - a descriptor
                remove_entry(opened, os.fsencode(entry))
        return opened

    def make_folder(self, folder: int, name: bytes, node: Node) -> None:
        """Make a directory unless there is one; a link or file in its place goes."""
        try:
            status = os.lstat(name, dir_fd=folder)
        except FileNotFoundError:
            super().make_folder(folder, name, node)
            return
        if stat.S_ISDIR(status.st_mode):
            if node.layer < 0:
                _keep_metadata(node, status)
            return
        if node.layer < 0:
            raise HostileImage(
                f"the layer has files in '{show_name(name)}', which is not a directory below it",
                context={"name": show_name(name)},
            )
        os.unlink(name, dir_fd=folder)
        super().make_folder(folder, name, node)

    def make_file(self, folder: int, name: bytes, node: Node) -> None:
        """Replace what is there, or delete it."""
        remove_entry(folder, name)
        if not is_whiteout(node):
            super().make_file(folder, name, node)

    def set_metadata(self, folder: int, name: bytes, node: Node) -> None:
        """Set metadata as in a sandbox, without the marks of overlays."""
        marked = node.xattrs
        node.xattrs = tuple(pair for pair in marked if pair != OPAQUE_MARK)
        super().set_metadata(folder, name, node)
        node.xattrs = marked


def _keep_metadata(node: Node, status: os.stat_result) -> None:
    """Let a directory that the layer does not name stay as it is."""
    node.mode, node.uid, node.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
    node.mtime, node.nanoseconds = divmod(status.st_mtime_ns, 10**9)
