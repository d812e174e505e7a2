# SPDX-License-Identifier: BSD-3-Clause
"""What unpacking as one user loses: owners that are not root, and modes that a node does not keep.

Beside an unpacked image, and beside a layer's directory, stands a table of the paths concerned. A program that runs
above them changes some; the layer it leaves then says what was said before, and not that all is root's. Whether a
program took the setuid bit from a file of the image cannot be seen, as a node does not keep it: the bit stays.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kedge.base.owner_records import (
    DEVICE_ATTRIBUTE,
    MODE_ATTRIBUTE,
    NAME_ATTRIBUTE,
    OWNER_ATTRIBUTE,
    decode_device,
    decode_mode,
    decode_owner,
    decode_records,
    encode_mode,
    encode_owner,
    encode_records,
)
from kedge.base.tree import Node, NodeKind, walk
from kedge.image.layers.privileges import make_mode_usable
from kedge.image.layers.whiteouts import OPAQUE_NAME, WHITEOUT_PREFIX, is_opaque

_NOTED, _DEVICE = OWNER_ATTRIBUTE.encode(), DEVICE_ATTRIBUTE.encode()
_MODE, _NAMED = MODE_ATTRIBUTE.encode(), NAME_ATTRIBUTE.encode()
_WITHOUT_NOTES = (NodeKind.SYMLINK, NodeKind.FIFO, NodeKind.SOCKET)
_DONE = "user.kedge.noted"  # of a directory whose files have their notes
_DEVICE_KINDS = {stat.S_IFCHR: NodeKind.CHARACTER_DEVICE, stat.S_IFBLK: NodeKind.BLOCK_DEVICE}


@dataclass(frozen=True, slots=True)
class RecordedOwner:
    """Owner, group and mode of a file as the image has them."""

    uid: int
    gid: int
    mode: int | None  # None: the file on the disk has the right one


class OwnerLookup(Protocol):
    """Knows the owners that files had before a program changed them."""

    def restore(self, path: bytes, node: Node, *, has_owner: bool) -> None:
        """Give a changed file the owner that its path had, unless it has one, and its mode if that was not changed."""
        ...


class OwnerTable:
    """The files of an image whose owner or mode differs from what is on the disk, by path without leading slash."""

    def __init__(self, owners: dict[bytes, RecordedOwner] | None = None) -> None:
        self._owners = owners or {}

    def __len__(self) -> int:
        return len(self._owners)

    def find(self, path: bytes) -> RecordedOwner | None:
        """Return what is recorded of a path; None for one that is root's and has the mode it shows."""
        return self._owners.get(path)

    def items(self) -> Iterator[tuple[bytes, RecordedOwner]]:
        """Yield all paths and owners that are recorded."""
        yield from self._owners.items()

    def list_numbers(self) -> dict[bytes, tuple[int, int]]:
        """Owner and group by path, of files that are not root's."""
        return {path: (owner.uid, owner.gid) for path, owner in self._owners.items() if owner.uid or owner.gid}

    def restore(self, path: bytes, node: Node, *, has_owner: bool) -> None:
        """Give a changed file the owner that its path had, unless it has one, and its mode if that was not changed."""
        recorded = self._owners.get(path)
        if recorded is None:
            return
        if not has_owner:
            node.uid, node.gid = recorded.uid, recorded.gid
        if recorded.mode is not None and node.mode == make_mode_usable(node.kind, recorded.mode):
            node.mode = recorded.mode

    def absorb(self, layer: Node) -> None:
        """Follow the tree of a layer that was put onto the files, whiteouts as layers name them or as overlays do."""
        replaced: set[bytes] = set()  # with all below
        emptied: set[bytes] = set()  # directories that stay themselves
        named: dict[bytes, Node] = {}
        for path, node in walk(layer):
            parent, _, name = path.rpartition(b"/")
            if name == OPAQUE_NAME:
                emptied.add(parent)
            elif name.startswith(WHITEOUT_PREFIX):
                replaced.add(_join(parent, name[len(WHITEOUT_PREFIX) :]))
            elif node.kind is not NodeKind.DIRECTORY:
                replaced.add(path)
            elif is_opaque(node):
                emptied.add(path)
            if node.layer >= 0:  # else a directory that the layer does not name
                named[path] = node
        self._owners = {
            path: owner
            for path, owner in self._owners.items()
            if path not in named
            and path not in replaced
            and not any(above in replaced or above in emptied for above in _list_above(path))
        }
        owned = {path: node for path, node in named.items() if node.uid or node.gid}
        self._owners |= {path: RecordedOwner(node.uid, node.gid, None) for path, node in owned.items()}

    def encode(self) -> bytes:
        """The table as a file; empty without any owner."""
        return encode_records((path, owner.uid, owner.gid, owner.mode) for path, owner in self._owners.items())

    @classmethod
    def decode(cls, data: bytes) -> OwnerTable:
        """The table in a file; an empty one where it is damaged: then all is root's."""
        return cls({path: RecordedOwner(uid, gid, mode) for path, uid, gid, mode in decode_records(data)})


class LevelOwners:
    """The owners in a base and the directories of layers above it, lowest first, as one tree."""

    def __init__(self, levels: Sequence[tuple[Path, OwnerTable]]) -> None:
        self._levels = [(os.fsencode(folder), table) for folder, table in reversed(levels)]

    def restore(self, path: bytes, node: Node, *, has_owner: bool) -> None:
        """Restore a node as the topmost level with the path says; what a level deleted is not looked for below it."""
        if all(table.find(path) is None for _, table in self._levels):
            return
        for folder, table in self._levels:
            try:
                status = os.lstat(folder + b"/" + path)
            except OSError:
                continue
            if not stat.S_ISCHR(status.st_mode):
                table.restore(path, node, has_owner=has_owner)
            return


def take_noted_owner(node: Node) -> bool:
    """Let a file have the owner that a step's program gave it, where an attribute says so; whether one does.

    One that stands for a device becomes the device.
    """
    noted = None
    if node.xattrs:
        noted = next((decode_owner(value) for key, value in node.xattrs if key == _NOTED), None)
        device = next((decode_device(value) for key, value in node.xattrs if key == _DEVICE), None)
        node.xattrs = tuple(pair for pair in node.xattrs if pair[0] not in (_NOTED, _DEVICE))
        if device is not None and node.kind is NodeKind.FILE:
            node.kind, node.rdev = _DEVICE_KINDS[device[0]], device[1]
            node.content, node.size = None, 0
    if noted is not None:
        node.uid, node.gid = noted
    return noted is not None


def hand_down_owners(folder: Node) -> None:
    """Let links and pipes have the owners that are noted at their directory, as if they had attributes themselves."""
    for name, value in take_named_notes(folder).items():
        if name in folder.children:
            hand_down(folder.children[name], value)


def take_named_notes(folder: Node) -> dict[bytes, bytes]:
    """Take what is noted at a directory of links and pipes in it, by name; the directory is without it then."""
    if not folder.xattrs or not any(key.startswith(_NAMED) for key, _ in folder.xattrs):
        return {}
    notes = {key.removeprefix(_NAMED): value for key, value in folder.xattrs if key.startswith(_NAMED)}
    folder.xattrs = tuple(pair for pair in folder.xattrs if not pair[0].startswith(_NAMED))
    return notes


def hand_down(node: Node, value: bytes) -> None:
    """Let a file without attributes have this note."""
    if node.kind in _WITHOUT_NOTES:
        node.xattrs = ((_NOTED, value),)


def take_noted_mode(node: Node) -> int | None:
    """The mode in the image of a file that has another on this host, where an attribute says so."""
    value = next((value for key, value in node.xattrs if key == _MODE), None)
    if value is None:
        return None
    node.xattrs = tuple(pair for pair in node.xattrs if pair[0] != _MODE)
    return decode_mode(value, node.mode)


def note_owners(folder: Path, table: OwnerTable) -> None:
    """Write the owners and modes of a table into attributes of the files, for programs that run above them; once."""
    if _has_attribute(folder, _DONE):
        return
    _note_all(folder, table.items())
    with contextlib.suppress(OSError):
        os.setxattr(folder, _DONE, b"")


def note_layer(folder: Path, layer: Node) -> None:
    """Note the owners of a layer put onto a directory; one that was there before may have another owner now."""
    owned = ((path, node) for path, node in walk(layer) if node.layer >= 0)
    _note_all(
        folder,
        (
            (path, RecordedOwner(node.uid, node.gid, None))
            for path, node in owned
            if node.uid or node.gid or node.kind is NodeKind.DIRECTORY
        ),
    )


def _note_all(folder: Path, owners: Iterable[tuple[bytes, RecordedOwner]]) -> None:
    place = os.fsencode(folder)
    for path, owner in owners:
        with contextlib.suppress(OSError):  # a link or a pipe, which have none; a file system without attributes
            _note_owner(place + b"/" + path, owner)


def _has_attribute(path: Path, name: str) -> bool:
    try:
        return name in os.listxattr(path)
    except OSError:
        return True  # none can be written either


def _note_owner(path: bytes, owner: RecordedOwner) -> None:
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        return
    shown = stat.S_IMODE(status.st_mode)
    if not shown & stat.S_IWUSR:
        os.chmod(path, shown | stat.S_IWUSR)  # noqa: PTH101 - paths are bytes
    try:
        os.setxattr(path, OWNER_ATTRIBUTE, encode_owner(owner.uid, owner.gid))
        if owner.mode is not None and owner.mode != shown:
            os.setxattr(path, MODE_ATTRIBUTE, encode_mode(owner.mode, shown))
    finally:
        if not shown & stat.S_IWUSR:
            os.chmod(path, shown)  # noqa: PTH101 - as above


def collect_owners(root: Node, *, keeps_modes: bool = False) -> OwnerTable:
    """The table of a tree as the image has it, before `make_usable` changes modes.

    `keeps_modes` says that files on the disk have the modes of the tree: then only owners are recorded.
    """
    if keeps_modes:
        owned = ((path, node) for path, node in walk(root) if node.uid or node.gid)
        return OwnerTable({path: RecordedOwner(node.uid, node.gid, None) for path, node in owned})
    return OwnerTable(dict(_find_lost(root)))


def _find_lost(root: Node) -> Iterator[tuple[bytes, RecordedOwner]]:
    for path, node in [(b"", root), *walk(root)]:
        if node.uid or node.gid or node.mode != make_mode_usable(node.kind, node.mode):
            yield path, RecordedOwner(node.uid, node.gid, node.mode)


def _join(parent: bytes, name: bytes) -> bytes:
    return parent + b"/" + name if parent else name


def _list_above(path: bytes) -> Iterator[bytes]:
    """The directories above a path, the root last."""
    while path:
        path = path.rpartition(b"/")[0]
        yield path
