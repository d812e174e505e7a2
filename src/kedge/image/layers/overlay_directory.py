# SPDX-License-Identifier: BSD-3-Clause
"""A layer as a directory of an overlay: deletions as character devices 0:0, opaque directories by an attribute.

An ordinary user may make such devices since Linux 5.8. Where the kernel or the file system does not let us, or the
layer leaves out directories whose owner and mode only the layers below know, `NoOverlayForm` says so: `apply_layer`
puts any layer onto a plain directory instead. The way back is `upper_directory.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

from kedge.base.tree import Node
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.layer_tree import find_implied, is_whiteout, read_layer_tree
from kedge.image.layers.limits import FlattenOptions
from kedge.image.layers.member_names import show_name
from kedge.image.layers.privileges import Privileges, choose_privileges
from kedge.image.layers.sandbox import SandboxSink
from kedge.image.layers.whiteouts import OPAQUE_MARK, is_opaque
from kedge.system.confined_paths import name_in

_PRIVILEGED_MARK = (b"trusted.overlay.opaque", b"y")  # what the kernel reads where real root mounts


class NoOverlayForm(Exception):
    """Why a layer cannot be a directory of an overlay here; the caller takes the way without overlay."""


def unpack_overlay(layer: LayerSource, target: Path, options: FlattenOptions | None = None) -> Node:
    """Make the directory `target` from a layer, whole or not at all; returns the layer's tree, without contents.

    Raises NoOverlayForm, or what `flatten` raises for layers that are damaged or hostile.
    """
    options = options or FlattenOptions()
    privileges = _OverlayPrivileges(choose_privileges(options.progress))
    with SandboxSink(target, privileges=privileges) as sink:
        root = read_layer_tree(layer, sink, options)
        implied = find_implied(root)
        if implied is not None:
            raise NoOverlayForm(f"layer {layer.name} does not describe the directory '/{show_name(implied)}'")
        sink.finish(root)
    return root


class _OverlayPrivileges:
    """Makes the marks of overlays; leaves all else to another."""

    def __init__(self, privileges: Privileges) -> None:
        self._privileges = privileges

    def set_owner(self, folder: int, name: bytes, node: Node) -> None:
        """Set the owner by the rights that this process has."""
        self._privileges.set_owner(folder, name, node)

    def make_device(self, folder: int, name: bytes, node: Node) -> None:
        """A whiteout, or a device as everywhere."""
        if not is_whiteout(node):
            self._privileges.make_device(folder, name, node)
            return
        try:
            os.mknod(name, 0o020600, 0, dir_fd=folder)
        except OSError as problem:
            raise NoOverlayForm(f"this host cannot mark deleted files: {problem.strerror}") from problem

    def set_xattrs(self, folder: int, name: bytes, node: Node) -> None:
        """The mark of opaque directories, and all others as everywhere."""
        self._privileges.set_xattrs(folder, name, node)
        if not is_opaque(node):
            return
        path = name_in(folder, name)
        try:
            if os.getxattr(path, OPAQUE_MARK[0], follow_symlinks=False) != OPAQUE_MARK[1]:
                raise NoOverlayForm("this file system changes extended attributes")
            if os.geteuid() == 0:
                os.setxattr(path, *_PRIVILEGED_MARK, follow_symlinks=False)
        except OSError as problem:
            raise NoOverlayForm(f"this file system cannot mark opaque directories: {problem.strerror}") from problem
