# SPDX-License-Identifier: BSD-3-Clause
"""Puts the final tree together from the records of all layers, lowest first, as unpacking them one by one would."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.base.tree import Node, NodeKind
from kedge.errors import CorruptImage, HostileImage
from kedge.image.layers.limits import Ledger
from kedge.image.layers.member_names import show_name
from kedge.image.layers.whiteouts import HardLink, LayerRecord, Run

_MAXIMUM_HOPS = 40  # symbolic links in one path, the kernel's limit
_MAXIMUM_FOLLOWED = 10_000_000  # components of links' targets walked for one image, about ten seconds


class Assembler:
    """A tree that layers are applied to; `root` is the result."""

    def __init__(self, ledger: Ledger) -> None:
        self.root = _make_implicit_folder()
        self._ledger = ledger
        self._hidden: dict[bytes, Node] = {}  # targets of the layer's hard links that the layer itself hides
        self._folders: dict[bytes, Node] = {}  # parents as resolved; dropped when a directory or link is replaced
        self._followed = 0
        self._where = ""

    def apply(self, record: LayerRecord) -> None:
        """Apply one layer: what it hides first, then its entries in their order."""
        self._where = f"layer {record.name}"
        self._folders = {}
        self._hidden = {}
        if record.whiteouts or record.opaques:
            self._hide_below(record)
        for run in record.entries.runs():
            self._apply_run(run)

    def _apply_run(self, run: Run) -> None:
        parent = run.parent
        for name, item in zip(run.names, run.items, strict=True):
            folder = self._open(parent, name)
            if type(item) is HardLink:
                item = self._find_target(item, parent, name)
            assert isinstance(item, Node)  # a hard link is a node by now
            existing = folder.children.get(name) if name else self.root
            if existing is None:
                folder.children[name] = item
            elif existing.kind is NodeKind.DIRECTORY and item.kind is NodeKind.DIRECTORY:
                _copy_metadata(item, existing)
            else:
                self._replace(folder, name, item)

    def _open(self, parent: bytes, name: bytes) -> Node:
        folder = self._folders.get(parent)
        if folder is None:
            folder = self._folders[parent] = self._resolve(parent, name)
        return folder

    def _replace(self, folder: Node, name: bytes, item: Node) -> None:
        if not name:
            raise HostileImage(f"{self._where}: the root of the image is not a directory")
        if folder.children[name].kind in (NodeKind.DIRECTORY, NodeKind.SYMLINK):
            self._folders.clear()
        folder.children[name] = item

    def _hide_below(self, record: LayerRecord) -> None:
        """Hide what whiteouts name, but keep what the layer's own hard links make of it."""
        targets = {item.target for _, _, item in record.entries if isinstance(item, HardLink)}
        before = {target: self._look_up(target) for target in targets}
        self._hide(record)
        self._hidden = {
            target: node for target, node in before.items() if node is not None and self._look_up(target) is None
        }

    def _hide(self, record: LayerRecord) -> None:
        """Remove from the lower layers what whiteouts and opaque directories name.

        Where this layer puts a directory in place of a lower symbolic link, a whiteout below it says nothing: what it
        would remove lies behind the link, which is gone.
        """
        named = {
            parent + b"/" + name if parent else name
            for parent, name, item in record.entries
            if isinstance(item, Node) and item.kind is NodeKind.DIRECTORY
        }
        for parent in record.opaques:
            folder = self._find_folder(parent, named)
            if folder is not None:
                folder.children.clear()
        for parent, name in record.whiteouts:
            folder = self._find_folder(parent, named)
            if folder is not None:
                folder.children.pop(name, None)

    def _find_folder(self, parent: bytes, named: set[bytes] | None = None) -> Node | None:
        """The directory at `parent`, links followed inside the root but not at paths in `named`; None if there is none.

        Where there is nothing, an empty directory outside of the tree: a link's `..` may lead back from there.
        """
        walk = _Walk(self.root, parent)
        for part in walk:
            node = walk.folder.children.get(part) or _make_implicit_folder()
            if node.kind not in (NodeKind.DIRECTORY, NodeKind.SYMLINK):
                return None
            if node.kind is NodeKind.DIRECTORY:
                walk.enter(node, part)
            elif (named and walk.lexical in named) or not self._follow(walk, node):
                return None
        return None if walk.escaped else walk.folder

    def _look_up(self, path: bytes) -> Node | None:
        """Return the node at `path`, its parents' links followed inside the root; None if nothing."""
        head, _, last = path.rpartition(b"/")
        folder = self._find_folder(head)
        return folder.children.get(last) if folder is not None and last else None

    def _resolve(self, parent: bytes, name: bytes) -> Node:
        """The directory of an entry, made where it is missing; symbolic links on the way stay inside the root."""
        walk = _Walk(self.root, parent)
        for part in walk:
            node = walk.folder.children.get(part)
            if node is not None and node.kind is NodeKind.SYMLINK:
                if not self._follow(walk, node):
                    raise self._refuse_way(parent, name, node)
                continue
            if node is None or node.kind is not NodeKind.DIRECTORY:
                if node is not None and walk.is_behind_link:
                    raise self._refuse_way(parent, name, walk.link)
                node = _make_implicit_folder()
            walk.enter(node, part)
        if walk.escaped:
            raise self._refuse_way(parent, name, walk.link)
        self._attach(walk)
        return walk.folder

    def _attach(self, walk: _Walk) -> None:
        """Put the directories that a walk implied into the tree, without those that its `..` left again."""
        if walk.depth >= self._ledger.options.maximum_depth:
            raise HostileImage(
                f"{self._where}: its directories are more than {self._ledger.options.maximum_depth} levels deep",
                context={"layer": self._where},
                hint="legitimate images have no such directories: do not use this image",
            )
        for folder, name, node in walk.steps():
            if folder.children.get(name) is not node:
                folder.children[name] = node
                if walk.link is not None:  # the reader has charged what names imply, not what links do
                    self._ledger.charge_member(len(name), self._where)

    def _follow(self, walk: _Walk, link: Node) -> bool:
        """Let a walk go on at a link's target; refuses images whose links are made to be walked for hours."""
        self._followed += link.target.count(b"/") + 1
        if self._followed > _MAXIMUM_FOLLOWED:
            raise HostileImage(
                f"{self._where}: its names lead through too many symbolic links",
                context={"layer": self._where, "link": show_name(link.target)},
                hint="legitimate images do not do this: do not use this image",
            )
        return walk.follow(link)

    def _find_target(self, link: HardLink, parent: bytes, name: bytes) -> Node:
        node = self._look_up(link.target) or self._hidden.get(link.target)
        if node is not None and node.kind is not NodeKind.DIRECTORY:
            return node
        path = show_name(parent + b"/" + name if parent else name)
        why = "which is in no layer up to this one" if node is None else "which is a directory"
        raise CorruptImage(
            f"{self._where}: '{path}' is a hard link to '{show_name(link.target)}', {why}",
            context={"layer": self._where, "path": path, "target": show_name(link.target)},
            hint="the image is incomplete: pull it again, or tell its owner",
        )

    def _refuse_way(self, parent: bytes, name: bytes, link: Node | None) -> HostileImage:
        path = show_name(parent + b"/" + name)
        target = show_name(link.target) if link is not None else ""
        return HostileImage(
            f"{self._where}: '{path}' would be written through a symbolic link to '{target}', which leaves the "
            f"image, leads to a file or forms a loop",
            context={"layer": self._where, "path": path, "link": target},
            hint="legitimate images do not do this: do not use this image",
        )


class _Walk:
    """Goes along a path one component at a time, the way a process confined to `root` would."""

    __slots__ = ("_floor", "_hops", "_names", "_pending", "_trail", "escaped", "lexical", "link")

    def __init__(self, root: Node, path: bytes) -> None:
        self._pending = path.split(b"/")[::-1] if path else []
        self._trail = [root]
        self._names: list[bytes] = []  # of the trail's directories, all but the root
        self._floor: int | None = None  # while more than this is pending, components come from a link's target
        self._hops = 0
        self.lexical = b""  # the part of `path` walked so far, as written
        self.link: Node | None = None  # the last link followed
        self.escaped = False  # a link's ".." went above the root

    @property
    def folder(self) -> Node:
        """Where the walk stands."""
        return self._trail[-1]

    @property
    def is_behind_link(self) -> bool:
        """Whether the component in hand is from a link's target and not from the path itself."""
        return self._floor is not None

    def __iter__(self) -> _Walk:
        return self

    def __next__(self) -> bytes:
        while self._pending:
            part = self._pending.pop()
            if self._floor is not None and len(self._pending) < self._floor:
                self._floor = None
            if self._floor is None:
                self.lexical = self.lexical + b"/" + part if self.lexical else part
            if part == b"..":
                self.escaped = self.escaped or len(self._trail) == 1
                if self._names:
                    self._trail.pop()
                    self._names.pop()
            elif part not in (b"", b"."):
                return part
        raise StopIteration

    @property
    def depth(self) -> int:
        """How many directories below the root the walk stands."""
        return len(self._names)

    def steps(self) -> Iterator[tuple[Node, bytes, Node]]:
        """The way from the root to where the walk stands: directory, name in it, directory of that name."""
        return zip(self._trail, self._names, self._trail[1:], strict=False)

    def enter(self, node: Node, name: bytes) -> None:
        """Step into a directory."""
        self._trail.append(node)
        self._names.append(name)

    def follow(self, link: Node) -> bool:
        """Go on at the link's target; False when there were too many links."""
        self._hops += 1
        self.link = link
        if self._hops > _MAXIMUM_HOPS:
            return False
        if self._floor is None:
            self._floor = len(self._pending)
        if link.target[:1] == b"/":
            self._trail, self._names = self._trail[:1], []
        self._pending.extend(reversed(link.target.split(b"/")))
        return True


def _make_implicit_folder() -> Node:
    """A parent that no layer has named (yet): 0755, root, time 0."""
    node = Node(NodeKind.DIRECTORY)
    node.layer = -1
    return node


def _copy_metadata(source: Node, folder: Node) -> None:
    """Let `folder` have the owner, mode, time and attributes of `source` and keep its children."""
    folder.mode, folder.uid, folder.gid = source.mode, source.uid, source.gid
    folder.mtime, folder.nanoseconds = source.mtime, source.nanoseconds
    folder.xattrs, folder.layer = source.xattrs, source.layer
