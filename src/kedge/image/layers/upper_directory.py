# SPDX-License-Identifier: BSD-3-Clause
"""The upper directory of an overlay as the tree of a layer: what a program has changed in the image below it.

The kernel marks a deleted file by a character device 0:0, and a directory that hides what was there by an attribute;
fuse-overlayfs does the same, or writes files with the names that layers use. The attributes of overlays do not get
into the layer. Ownership: `owners.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.progress import Progress, Silent
from kedge.base.tree import Node, NodeKind
from kedge.errors import UnsupportedFormat
from kedge.image.layers.directory_tree import FolderOptions, FolderSource, is_mostly_hole, read_folder
from kedge.image.layers.layer_tree import OVERLAY_PREFIXES, is_whiteout, strip_marks
from kedge.image.layers.member_names import show_name
from kedge.image.layers.owners import OwnerLookup, OwnerTable, hand_down_owners, take_noted_mode, take_noted_owner
from kedge.image.layers.tar_writer import refuse_whiteout
from kedge.image.layers.whiteouts import OPAQUE_NAME, WHITEOUT_PREFIX

_OPAQUE = frozenset(prefix + b"opaque" for prefix in OVERLAY_PREFIXES)
_ELSEWHERE = frozenset(prefix + name for prefix in OVERLAY_PREFIXES for name in (b"redirect", b"metacopy"))

_LARGEST_HOLE = 64 << 30  # bytes: minutes of reading zeros


@dataclass(frozen=True, slots=True)
class UpperOptions:
    """How an upper directory is read."""

    left_out: frozenset[bytes] = frozenset()  # paths from the root, without slash: mount points, /etc/resolv.conf
    owners: OwnerLookup = field(default_factory=OwnerTable)  # of the image below
    known: OwnerTable | None = None  # whose the files are that are not root's, all of them; then nothing else counts
    all_root: bool = True  # one user did it all; False inside a user namespace that has the image's users
    has_whiteout_files: bool = False  # fuse-overlayfs wrote it: `.wh.` files are deletions and not a program's files
    is_below: Callable[[bytes], bool] | None = None  # whether the image below has that path; None: it may have any
    maker: tuple[int, int] = (0, 0)  # user and group of the program: whose files are that the image below does not have
    keeps_root: bool = False  # the root's own mode and time are part of the layer
    progress: Progress = field(default_factory=Silent)


def read_upper(folder: Path, options: UpperOptions | None = None) -> tuple[Node, FolderSource]:
    """The layer's tree, for `write_layer` with `holds_whiteouts`, and where its contents come from.

    The source has to be closed when the layer is written.
    """
    options = options or UpperOptions()
    root, source = read_folder(
        folder, FolderOptions(follows=False, all_root=options.all_root, unlocks=True, progress=options.progress)
    )
    _Translation(options).run(root)
    return root, source


def is_of_fuse(work: Path) -> bool:
    """Whether fuse-overlayfs used this work directory: its own in there has the mode 700.

    The kernel closes its own to everybody, and `mount_kernel` opens that with the sticky bit.
    """
    try:
        return (work / "work").stat().st_mode & 0o1700 == 0o700
    except OSError:
        return False


class _Translation:
    """Turns the marks of overlays into those of layers, in place."""

    def __init__(self, options: UpperOptions) -> None:
        self._options = options

    def run(self, root: Node) -> None:
        pending = [(b"", root)]
        while pending:
            path, folder = pending.pop()
            hand_down_owners(folder)
            prefix = path + b"/" if path else b""
            folder.children = {
                name: node
                for raw, child in folder.children.items()
                if prefix + raw not in self._options.left_out
                for name, node in self._translate(prefix + raw, raw, child)
            }
            self._mark_opaque(path, folder)
            pending += [
                (prefix + name, node) for name, node in folder.children.items() if node.kind is NodeKind.DIRECTORY
            ]
        if not self._options.keeps_root:
            root.layer = -1

    def _translate(self, path: bytes, name: bytes, node: Node) -> list[tuple[bytes, Node]]:
        """What stands for a file of the upper directory, if anything."""
        if is_whiteout(node):
            return [(WHITEOUT_PREFIX + name, make_whiteout())] if self._hides(path) else []
        if name.startswith(WHITEOUT_PREFIX):
            if not self._options.has_whiteout_files:
                raise refuse_whiteout(path)
            return [(name, make_whiteout())]
        is_below = self._options.is_below
        is_new = is_below is not None and self._options.maker != (0, 0) and not is_below(path)
        settle_owner(self._options, path, node, is_new=is_new)
        if node.kind is not NodeKind.DIRECTORY:
            _drop_marks(path, node)
        return [(name, node)]

    def _mark_opaque(self, path: bytes, folder: Node) -> None:
        is_opaque = any(key in _OPAQUE and value == b"y" for key, value in folder.xattrs)
        if is_opaque and self._hides(path):
            folder.children[OPAQUE_NAME] = make_whiteout()
        elif OPAQUE_NAME in folder.children and not self._hides(path):
            del folder.children[OPAQUE_NAME]
        _drop_marks(path, folder)

    def _hides(self, path: bytes) -> bool:
        return self._options.is_below is None or self._options.is_below(path)


def settle_owner(options: UpperOptions, path: bytes, node: Node, *, is_new: bool) -> None:
    """Give a file its owner: whom the program gave it to, its path's in the image below, or the program's user."""
    make_capability_general(node)
    _refuse_hole(path, node)
    mode = take_noted_mode(node)
    has_owner = take_noted_owner(node) or not options.all_root
    if options.known is not None:
        owner = options.known.find(path)
        node.uid, node.gid = (owner.uid, owner.gid) if owner is not None else (0, 0)
        return  # the step saw modes as the image has them, too
    if is_new and not has_owner:
        node.uid, node.gid = options.maker
        has_owner = True
    options.owners.restore(path, node, has_owner=has_owner)
    node.mode = node.mode if mode is None else mode


def _refuse_hole(path: bytes, node: Node) -> None:
    """A layer would hold every zero of such a file, and all who read the image would read them."""
    if is_mostly_hole(node, _LARGEST_HOLE):
        raise UnsupportedFormat(
            f"'/{show_name(path)}' is {node.size / 1e9:,.0f} GB of nothing but a hole (a sparse file)",
            context={"path": show_name(path), "size": str(node.size)},
            hint="remove the file in the same step; useradd makes no large /var/log/lastlog with --no-log-init",
        )


def make_whiteout() -> Node:
    """The empty file whose name says what is deleted."""
    return Node(NodeKind.FILE, 0o644)


def _drop_marks(path: bytes, node: Node) -> None:
    """Take away the overlay's attributes; those that say that content is elsewhere cannot be understood here."""
    if any(key in _ELSEWHERE for key, _ in node.xattrs):
        raise UnsupportedFormat(
            f"the overlay refers to a file of a lower layer in '/{show_name(path)}', which a layer cannot hold",
            context={"path": show_name(path)},
            hint="mount the overlay without redirect_dir and metacopy",
        )
    strip_marks(node)


# File capabilities as images have them: those that root of a user namespace sets name the user who stands behind it.
#
# The kernel stores them with that user's number (revision 3 of struct vfs_cap_data, linux/capability.h), which means
# nothing on another host. In an image they are those of root (revision 2), as setcap writes them there.

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
