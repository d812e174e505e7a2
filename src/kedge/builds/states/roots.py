# SPDX-License-Identifier: BSD-3-Clause
"""Makes directories of a state, for a step that runs in it: by an overlay, or as one private directory.

By an overlay: the base is unpacked once on this node, every layer above it is a directory of the node cache, and what a
step writes is in a directory of its own, which becomes the next layer's. Where this host has no overlays, the state is
put together in a directory of the build, a step writes there, and its layer is the difference. Nothing is made before
a step has to run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kedge.base.frozen import frozen
from kedge.base.tree import ContentSource, Node, copy_tree
from kedge.builds.states.build_place import BuildPlace, BuildState, StepLayer
from kedge.builds.states.merged_view import MergedView, ViewLevel, view_directory
from kedge.container.processes.subordinate_ids import knows_others
from kedge.container.start.build_step import StepRoot
from kedge.errors import FileProblem
from kedge.image.layers.apply_layer import apply_layer
from kedge.image.layers.directory_changes import read_changes, take_snapshot
from kedge.image.layers.directory_tree import FolderOptions, FolderSource, read_folder
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.overlay_directory import unpack_overlay
from kedge.image.layers.owners import LevelOwners, OwnerTable, collect_owners, note_layer, note_owners
from kedge.image.layers.sandbox import SandboxSink
from kedge.image.layers.unpack_squashfs import measure_tree
from kedge.image.layers.upper_directory import UpperOptions, is_of_fuse, read_upper
from kedge.image.node.node_cache_writer import Built
from kedge.image.node_cache import read_owners
from kedge.image.store.store import Store
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained
from kedge.system.foreign_trees import remove_with_foreign
from kedge.system.views import DirectoryView

_TRIES = 3
_MOUNT_POINTS = ("dev", "proc", "sys")  # all that an empty base has


class StepWorkspace(Protocol):
    """The tree that one step works in."""

    @property
    def root(self) -> StepRoot:
        """What its program runs in."""
        ...

    def view(self) -> MergedView:
        """The tree as it is now."""
        ...

    def read_changes(self, left_out: frozenset[bytes], maker: tuple[int, int] = (0, 0)) -> tuple[Node, FolderSource]:
        """What the step changed, as the tree of a layer; the source has to be closed."""
        ...

    def keep(self, state: BuildState) -> None:
        """The step succeeded, and the state has its layer: the tree may be used for the next step."""
        ...


class StageRoot(Protocol):
    """Makes trees of the states of one stage."""

    def view(self, state: BuildState) -> MergedView:
        """The files of a state; nothing may change them."""
        ...

    def open(self, state: BuildState) -> contextlib.AbstractContextManager[StepWorkspace]:
        """A tree for a step; what it changes is gone afterwards unless it was kept."""
        ...


@frozen
class NodeDirectories:
    """Bases and layers as directories of the node cache, held until the build ends."""

    place: BuildPlace
    store: Store

    def find_base(self, state: BuildState) -> Path:
        """The unpacked base; an empty directory for an empty one."""
        return self._hold(lambda: state.base.unpack() or self._make_empty())

    def _make_empty(self) -> Path:
        def build(root: Path, require_room: Callable[[int], None]) -> Built:
            del require_room
            for name in _MOUNT_POINTS:
                (root / name).mkdir(parents=True)
            return Built(0)

        return self.place.node.make("scratch", "an empty base", build)[0]

    def find_layer(self, layer: StepLayer) -> Path:
        """A layer in overlay form; raises NoOverlayForm where there is none here."""

        def build(root: Path, require_room: Callable[[int], None]) -> Built:
            require_room(3 * layer.descriptor.size)
            tree = unpack_overlay(read_layer(self.store, layer), root)
            return describe_layer(tree)

        return self._make(layer, build)

    def adopt(self, layer: StepLayer, upper: Path, about: Built) -> None:
        """Take the directory that a step wrote as its layer's."""

        def build(root: Path, require_room: Callable[[int], None]) -> Built:
            del require_room
            with explained(upper):
                upper.rename(root)
            return about

        self._make(layer, build)

    def _make(self, layer: StepLayer, build: Callable[[Path, Callable[[int], None]], Built]) -> Path:
        name = f"layer-{layer.diff_id.hex}"
        known = self.place.find_held(name)
        return known or self._hold(
            lambda: self.place.node.make(name, f"build layer {layer.diff_id.hex[:12]}", build)[0]
        )

    def _hold(self, find: Callable[[], Path]) -> Path:
        for _ in range(_TRIES):
            root = find()
            if self.place.hold(root):
                if _is_one_user() and root.is_relative_to(self.place.node.place):  # others are not ours to change
                    note_owners(root, OwnerTable.decode(read_owners(str(root))))
                return root
        raise FileProblem(f"{root} was removed while kedge built from it", hint="try again")


def describe_layer(tree: Node) -> Built:
    """The size of a layer's directory, and whose files are not root's."""
    return Built(measure_tree(tree), owners=collect_owners(tree, keeps_modes=True).encode())


def _is_one_user() -> bool:
    """Whether all files of steps are ours; those of real root have the owners that they are given."""
    return os.geteuid() != 0 or not knows_others(DirectoryView("/"))


def _read_level(folder: Path) -> ViewLevel:
    return ViewLevel(folder, OwnerTable.decode(read_owners(str(folder))))


@frozen
class OverlayRoot:
    """The way by overlays."""

    directories: NodeDirectories

    def view(self, state: BuildState) -> MergedView:
        """Base and layers, merged as they are read."""
        return MergedView(self._list_levels(state))

    def _list_levels(self, state: BuildState) -> tuple[ViewLevel, ...]:
        layers = (self.directories.find_layer(layer) for layer in state.layers)
        return tuple(map(_read_level, (self.directories.find_base(state), *layers)))

    @contextlib.contextmanager
    def open(self, state: BuildState) -> Iterator[_OverlayWorkspace]:
        """A fresh upper directory above the state."""
        changes = self.directories.place.make_folder("step")
        try:
            yield _OverlayWorkspace(self.directories, self._list_levels(state), changes)
        finally:
            remove_with_foreign(changes)


@dataclass(slots=True)
class _OverlayWorkspace:
    directories: NodeDirectories
    levels: tuple[ViewLevel, ...]  # the base first
    changes: Path
    _about: Built = field(default_factory=lambda: Built(0))

    @property
    def root(self) -> StepRoot:
        """The program's root."""
        base, *layers = (str(level.folder) for level in self.levels)
        return StepRoot(base, tuple(layers), str(self.changes))

    @property
    def _upper(self) -> Path:
        return Path(self.root.upper)

    @property
    def _is_of_fuse(self) -> bool:
        return is_of_fuse(self.changes / "work")

    def view(self) -> MergedView:
        """Return a view of the state with what the step has written."""
        uppers = (ViewLevel(self._upper),) if self._upper.is_dir() else ()
        return MergedView((*self.levels, *uppers))

    def read_changes(self, left_out: frozenset[bytes], maker: tuple[int, int] = (0, 0)) -> tuple[Node, FolderSource]:
        """The upper directory."""
        with contextlib.closing(MergedView(self.levels)) as below:
            options = UpperOptions(
                left_out,
                LevelOwners([(level.folder, level.owners) for level in self.levels]),
                known=self._read_known(),
                all_root=_is_one_user(),
                has_whiteout_files=self._is_of_fuse,
                is_below=lambda path: below.find("/" + os.fsdecode(path)) is not None,
                maker=maker,
            )
            tree, source = read_upper(self._upper, options)
        self._about = describe_layer(tree)
        return tree, source

    def _read_known(self) -> OwnerTable | None:
        """Return whose the files are, where the step knew all users of the image."""
        if not self.root.has_users:
            return None
        table = Path(self.root.owners)
        with explained(table):
            return OwnerTable.decode(table.read_bytes())

    def keep(self, state: BuildState) -> None:
        """The upper directory is the layer's from now on; one of fuse-overlayfs means little to the kernel."""
        if not self._is_of_fuse:
            self.directories.adopt(state.layers[-1], self._upper, self._about)


class PrivateRoot:
    """The way without overlays: one directory, which follows the stage from step to step."""

    def __init__(self, directories: NodeDirectories) -> None:
        self._directories = directories
        self._folder: Path | None = None
        self._base = ""
        self._layers: tuple[StepLayer, ...] = ()
        self.owners = OwnerTable()

    def view(self, state: BuildState) -> MergedView:
        """The directory."""
        return view_directory(self.make_folder(state), self.owners)

    @contextlib.contextmanager
    def open(self, state: BuildState) -> Iterator[_PrivateWorkspace]:
        """The directory, which is thrown away unless its changes are kept."""
        workspace = _PrivateWorkspace(self, self.make_folder(state))
        try:
            yield workspace
        finally:
            if not workspace.is_kept:
                self._drop()

    def make_folder(self, state: BuildState) -> Path:
        """The directory with the files of a state."""
        known = self._layers
        if self._folder is None or self._base != state.base.key or state.layers[: len(known)] != known:
            self._drop()
            self._folder = self._copy_base(state)
            self._base, self._layers = state.base.key, ()
        for layer in state.layers[len(self._layers) :]:
            tree = apply_layer(self._folder, read_layer(self._directories.store, layer))
            self.owners.absorb(tree)
            if _is_one_user():
                note_layer(self._folder, tree)
            self._layers = (*self._layers, layer)
        return self._folder

    def _copy_base(self, state: BuildState) -> Path:
        target = self._directories.place.make_folder("root") / "root"
        base = _read_level(self._directories.find_base(state))
        self.owners = base.owners
        return copy_folder(base.folder, target)

    def note(self, layers: tuple[StepLayer, ...], changes: Node) -> None:
        """The directory has the files of these layers now, the last of which has these changes."""
        self._layers = layers
        self.owners.absorb(changes)

    def _drop(self) -> None:
        if self._folder is not None:
            remove_tree(self._folder.parent)
        self._folder = None


def copy_folder(source: Path, target: Path) -> Path:
    """A copy of a directory with all that is in it, or of a file."""
    if not source.is_dir():
        with explained(source):
            shutil.copy2(source, target)
        return target
    tree, contents = read_folder(source, FolderOptions(unlocks=True))
    with contextlib.closing(contents):
        return copy_nodes(tree, contents, target)


def copy_nodes(tree: Node, contents: ContentSource, target: Path) -> Path:
    """The files of a tree as a new directory."""
    with SandboxSink(target) as sink:
        sink.finish(copy_tree(tree, contents, sink))
    return target


class _PrivateWorkspace:
    def __init__(self, owner: PrivateRoot, folder: Path) -> None:
        self._owner = owner
        self._folder = folder
        self._before = take_snapshot(folder)
        self._changes: Node | None = None
        self.is_kept = False

    @property
    def root(self) -> StepRoot:
        """The directory itself."""
        return StepRoot(os.fspath(self._folder))

    def view(self) -> MergedView:
        """The directory as it is."""
        return view_directory(self._folder, self._owner.owners)

    def read_changes(self, left_out: frozenset[bytes], maker: tuple[int, int] = (0, 0)) -> tuple[Node, FolderSource]:
        """The difference to what was there before."""
        options = UpperOptions(left_out, self._owner.owners, all_root=_is_one_user(), maker=maker)
        tree, source = read_changes(self._before, self._folder, options)
        self._changes = tree
        return tree, source

    def keep(self, state: BuildState) -> None:
        """The directory is the state's."""
        if self._changes is not None:
            self.is_kept = True
            self._owner.note(state.layers, self._changes)


# Layers of steps as their bytes in the cache.

_PIECE = 1 << 20


def read_layer(store: Store, layer: StepLayer) -> LayerSource:
    """A layer of a step as its bytes in the cache."""
    path = store.blob_path(layer.descriptor.digest)

    def read() -> Iterator[bytes]:
        with explained(path), path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    return LayerSource(
        layer.descriptor.digest.hex[:12], layer.descriptor.digest, layer.diff_id, read, layer.descriptor.size
    )
