# SPDX-License-Identifier: BSD-3-Clause
"""COPY, ADD and %files: the layer that a step makes, and what it is known by in the cache. No program runs for it.

COPY and ADD follow BuildKit: of a directory the contents are copied, a file goes into a directory that is there, what
is made on the way has mode 0755, contents of the context are root's. %files follows `cp -fLr`, from a stage `cp -fPr`.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kedge.base.tree import ContentSource, Node, NodeKind, walk
from kedge.builds.addresses import is_address, is_git_address
from kedge.builds.copies.added_files import LentContent
from kedge.builds.copies.context import FileOrigin
from kedge.builds.copies.copy_attributes import Owner, change_mode, check_mode, find_owner
from kedge.builds.copies.copy_layer import CopyLayer
from kedge.builds.patterns import BadPattern, IgnorePatterns, expand_braces, has_wildcard, parse_ignore_lines
from kedge.builds.states.merged_view import MergedView
from kedge.builds.step_values import CopyStep, InlineFile, refuse_recipe
from kedge.image.layers.directory_tree import FolderSource

if TYPE_CHECKING:
    from kedge.builds.copies.added_files import AddedFiles

_INLINE_MODE = 0o644
_UMASK = 0o022  # of definition files' builds


class CopiedContent:
    """Contents of files from everywhere: directories of this host, the recipe, archives and downloads."""

    def chunks(self, node: Node) -> Iterator[bytes]:
        """The bytes of a file."""
        content = node.content
        if isinstance(content, bytes):
            yield content
        elif isinstance(content, LentContent):
            yield from content.chunks()
        else:
            yield from FolderSource().chunks(node)


@dataclass(frozen=True, slots=True)
class _Item:
    """One thing to copy: its name in a directory it lands in, its tree, and whether it is an archive's contents.

    `path` is where %files puts it that names no destination.
    """

    name: str
    tree: Node
    is_unpacked: bool = False
    path: str = ""


def make_copy(
    step: CopyStep, origin: FileOrigin, target: MergedView, added: AddedFiles | None = None
) -> tuple[Node, ContentSource]:
    """The layer of a step, for the state `target`; `added` fetches what ADD names by address."""
    if step.mode:
        check_mode(step.mode, step.place)
    selection = _Selection(step, origin, added)
    items = list(selection.items())
    owner = find_owner(step.owner, target, step.place) if step.owner else Owner()
    below = MergedView(()) if step.is_link else target
    newest = max((item.tree.mtime for item in items), default=0)
    layer = CopyLayer(below, step.place, owner, newest)
    layer.root.layer = -1  # it stays as it is
    for item in items:
        _set_attributes(item, step, owner if step.owner else None)
    _check_destination(step, layer, items)
    for item in items:
        (_place_by_cp if step.is_definition else _place)(step, layer, item, is_one=len(items) == 1)
    return layer.root, CopiedContent()


def digest_copy(step: CopyStep, origin: FileOrigin, added: AddedFiles | None = None) -> str:
    """What the files of a step are, as text: equal for equal names, kinds, modes and contents. For cache keys."""
    hashed = hashlib.sha256()
    if origin.key and not any(map(is_address, step.sources)):
        hashed.update(repr(("origin", origin.key, step.sources)).encode())
    else:
        for item in _Selection(step, origin, added, is_look=True).select_sources():
            hashed.update(repr((item.name, origin.digest_tree(item.tree))).encode())
    for inline in step.inline:
        hashed.update(repr((inline.name, inline.data)).encode())
    return hashed.hexdigest()


@dataclass(slots=True)
class _Selection:
    """What the sources of a step name."""

    step: CopyStep
    origin: FileOrigin
    added: AddedFiles | None
    is_look: bool = False  # whether the files are identified only
    _excluded: IgnorePatterns = field(init=False)

    def __post_init__(self) -> None:
        try:
            self._excluded = parse_ignore_lines(self.step.excluded)
        except BadPattern as problem:
            raise refuse_recipe(self.step.place, f"--exclude: {problem}") from problem

    def items(self) -> Iterator[_Item]:
        """Yield all items in the order of the recipe; raises for a source that names nothing."""
        yield from self.select_sources()
        for inline in self.step.inline:
            yield _Item(inline.name, _make_inline(inline))

    def select_sources(self) -> Iterator[_Item]:
        """Yield the items that are not in the recipe itself."""
        for source in self.step.sources:
            if self.step.is_addition and is_address(source):
                yield from self._fetch(source)
            elif self.step.keeps_parents:
                yield self._select_with_parents(source)
            else:
                yield from self._select(source)

    def _fetch(self, source: str) -> Iterator[_Item]:
        step = self.step
        if self.added is None:
            raise refuse_recipe(step.place, f"{source} cannot be fetched here")
        if is_git_address(source):
            tree = self.added.clone(source, step)
            yield _Item("", tree)
            return
        name, node = self.added.download(source, step)
        unpacked = self.added.unpack(node, name, step.place) if step.unpacks and not self.is_look else None
        yield _Item(name, node) if unpacked is None else _Item(name, unpacked, is_unpacked=True)

    def _select(self, source: str) -> Iterator[_Item]:
        step = self.step
        try:
            patterns = expand_braces(source) if step.is_definition else [source]
            paths = [path for pattern in patterns for path in self.origin.expand(pattern)]
        except BadPattern as problem:
            raise refuse_recipe(step.place, f"{source}: {problem}") from problem
        for path in paths:
            name = posixpath.basename(path)
            excluded = self._excluded
            if excluded and excluded.leaves_out(name) and self.origin.view.kind(path) != "d":
                continue
            follows = step.is_definition and not self.origin.key
            tree = self.origin.read_tree(
                path, excluded, follows=follows, source=source, at=step.place, is_look=self.is_look
            )
            if tree is None:
                raise self._refuse_missing(source, path)
            if step.is_definition and source.endswith("/") and tree.kind is not NodeKind.DIRECTORY:
                raise refuse_recipe(step.place, f"{source} is not a directory", "leave out the slash at its end")
            yield self._unpack(_Item(name, tree, path=self._name_path(source, path)))
        if not paths and step.is_definition:
            raise self._refuse_missing(source, source)

    def _name_path(self, source: str, path: str) -> str:
        """The path without the directory that relative sources begin at."""
        folder = self.origin.folder.rstrip("/") + "/"
        return "/" + path.removeprefix(folder) if not source.startswith("/") and path.startswith(folder) else path

    def _unpack(self, item: _Item) -> _Item:
        step = self.step
        wants = step.is_addition and not self.is_look and step.unpacks is not False
        if self.added is None or not wants or item.tree.kind is not NodeKind.FILE:
            return item
        unpacked = self.added.unpack(item.tree, item.name, step.place)
        return item if unpacked is None else _Item(item.name, unpacked, is_unpacked=True)

    def _select_with_parents(self, source: str) -> _Item:
        """The files with the directories above them, from the context's root or from behind `/./` on."""
        before, pivot, behind = source.partition("/./")
        start, pattern = (before, behind) if pivot else ("/", source)
        pattern = posixpath.normpath("/" + pattern)[1:] or "*"
        try:
            chosen = parse_ignore_lines(("**", f"!{pattern}", *self.step.excluded))
        except BadPattern as problem:
            raise refuse_recipe(self.step.place, f"{source}: {problem}") from problem
        tree = self.origin.read_tree(self.origin.locate(start), chosen)
        if tree is None or (not tree.children and not has_wildcard(source)):
            raise self._refuse_missing(source, source)
        return _Item("", tree)

    def _refuse_missing(self, source: str, path: str) -> Exception:
        """Say why a source names nothing: a pattern leaves it out, a link leads out, or it is not there."""
        step, origin = self.step, self.origin
        if origin.leaves_out(path):
            return refuse_recipe(
                step.place, f"{source} is left out of {origin.name} by {origin.ignore_file}", "change the pattern there"
            )
        target = origin.view.read_link(path)
        if target:
            return refuse_recipe(
                step.place,
                f"{source} is a link to {target}, which is not in {origin.name}",
                f"copy the file into {origin.name}: links are followed inside it only",
            )
        if origin.view.find(path) is not None:
            return refuse_recipe(step.place, f"{source} is a socket, which an image cannot hold")
        hint = "paths begin at the context's directory; what lies outside of it cannot be copied"
        if origin.folder != "/":
            hint = f"relative paths begin at {origin.folder}"
        return refuse_recipe(step.place, f"{source} does not exist in {origin.name}", None if origin.key else hint)


def _make_inline(inline: InlineFile) -> Node:
    node = Node(NodeKind.FILE, _INLINE_MODE)
    node.size = len(inline.data)
    node.content = inline.data or None
    return node


def _set_attributes(item: _Item, step: CopyStep, owner: Owner | None) -> None:
    """Owners and modes as the step wants them, for all that is copied."""
    for node in _all_nodes(item.tree):
        if owner is not None:
            node.uid, node.gid = owner.uid, owner.gid
        if step.mode and node.kind is not NodeKind.SYMLINK and not item.is_unpacked:
            node.mode = change_mode(node, step.mode)
        if step.is_definition:
            node.mode &= 0o777 & ~_UMASK if node.kind is not NodeKind.SYMLINK else 0o777
            node.uid = node.gid = 0


def _all_nodes(root: Node) -> Iterator[Node]:
    seen: set[int] = set()
    for node in (root, *(node for _, node in walk(root))):
        if id(node) not in seen:
            seen.add(id(node))
            yield node


def _check_destination(step: CopyStep, layer: CopyLayer, items: list[_Item]) -> None:
    """Several files need a directory."""
    files = sum(item.tree.kind is not NodeKind.DIRECTORY for item in items)
    if files < 2 or step.destination.endswith(("/", "/.")) or step.is_definition:
        return
    if not layer.is_directory(layer.resolve(step.destination)):
        raise refuse_recipe(
            step.place,
            f"{files} files cannot all be copied to {step.destination}",
            f"add a slash if it is a directory: {step.destination}/",
        )


def _place(step: CopyStep, layer: CopyLayer, item: _Item, *, is_one: bool) -> None:
    """Place an item as COPY and ADD put it."""
    del is_one
    destination = step.destination
    if destination.endswith(("/", "/.")) or item.is_unpacked:
        layer.make_directory(layer.resolve(destination))
    path = layer.resolve(destination)
    if item.tree.kind is NodeKind.DIRECTORY:
        layer.merge(path, item.tree, overwrites=True)
        return
    layer.put(posixpath.join(path, item.name) if layer.is_directory(path) else path, item.tree)


def _place_by_cp(step: CopyStep, layer: CopyLayer, item: _Item, *, is_one: bool) -> None:
    """Place an item as `cp -r` puts it: a directory goes into one that is there, whose metadata stays."""
    destination = step.destination or item.path
    is_many = bool(step.destination) and not is_one
    if destination.endswith("/") or (is_many and layer.find(layer.resolve(destination)) is None):
        layer.make_directory(layer.resolve(destination))
    path = layer.resolve(destination)
    takes_contents = step.sources[0].endswith("/.")
    if layer.is_directory(path) and item.name and not takes_contents:
        path = posixpath.join(path, item.name)
    if item.tree.kind is not NodeKind.DIRECTORY:
        path = layer.resolve(path) if item.tree.kind is NodeKind.FILE else path
        known = layer.find(path)
        if known is not None and known.kind is NodeKind.FILE:
            item.tree.mode = known.mode
        layer.put(path, item.tree)
        return
    is_new = layer.find(path) is None
    folder = layer.make_directory(layer.resolve(path))
    if is_new:
        folder.mode, folder.mtime = item.tree.mode, item.tree.mtime
    layer.merge(layer.resolve(path), item.tree, overwrites=False)
