# SPDX-License-Identifier: BSD-3-Clause
"""What unpacking as one user loses: owners that are not root, and modes that a node does not keep.

Beside an unpacked image stands a table of the paths concerned. A program that runs above the image changes some of
them; the layer it leaves then says what the image said, and not that all is root's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kedge.layers.unpack_squashfs import make_mode_usable
from kedge.model.tree import Node, walk

_FIRST_LINE = b"kedge owners 1"
_MAXIMUM_NUMBER = (1 << 32) - 2


@dataclass(frozen=True, slots=True)
class RecordedOwner:
    """Owner, group and mode of a file as the image has them."""

    uid: int
    gid: int
    mode: int


class OwnerTable:
    """The files of an image whose owner or mode differs from what is on the disk, by path without leading slash."""

    def __init__(self, owners: dict[bytes, RecordedOwner] | None = None) -> None:
        self._owners = owners or {}

    def __len__(self) -> int:
        return len(self._owners)

    def find(self, path: bytes) -> RecordedOwner | None:
        """What is recorded of a path; None for one that is root's and has the mode it shows."""
        return self._owners.get(path)

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
        if node.mode == make_mode_usable(node.kind, recorded.mode):
            node.mode = recorded.mode

    def encode(self) -> bytes:
        """The table as a file: records that end with a NUL byte, for paths may contain any other. Empty without any."""
        if not self._owners:
            return b""
        records = [b"%d %d %o %s" % (r.uid, r.gid, r.mode, path) for path, r in sorted(self._owners.items())]
        return b"\0".join([_FIRST_LINE, *records]) + b"\0"

    @classmethod
    def decode(cls, data: bytes) -> OwnerTable:
        """The table in a file; an empty one where it is damaged: then all is root's."""
        first, *records = data.split(b"\0")
        if first != _FIRST_LINE or not records or records.pop():
            return cls()
        try:
            return cls(dict(map(_decode_record, records)))
        except ValueError:
            return cls()


def collect_owners(root: Node) -> OwnerTable:
    """The table of a tree as the image has it, before `make_usable` changes modes."""
    return OwnerTable(dict(_find_lost(root)))


def _find_lost(root: Node) -> Iterator[tuple[bytes, RecordedOwner]]:
    for path, node in [(b"", root), *walk(root)]:
        if node.uid or node.gid or node.mode != make_mode_usable(node.kind, node.mode):
            yield path, RecordedOwner(node.uid, node.gid, node.mode)


def _decode_record(record: bytes) -> tuple[bytes, RecordedOwner]:
    uid, gid, mode, path = record.split(b" ", 3)
    owner = RecordedOwner(int(uid), int(gid), int(mode, 8))
    if not (0 <= owner.uid <= _MAXIMUM_NUMBER and 0 <= owner.gid <= _MAXIMUM_NUMBER and 0 <= owner.mode <= 0o7777):
        raise ValueError("no owner, group or mode")
    return path, owner
