# SPDX-License-Identifier: BSD-3-Clause
"""Where steps take files from: the context, an earlier stage, another image, a context with a name.

What is in a stage or an image is known by its key; nothing of it is unpacked to find a record. Of the context the files
that a step names are hashed.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.frozen import replace
from kedge.base.tree import Node, NodeKind
from kedge.builds.bases.bases import OpenedBase
from kedge.builds.bases.named_contexts import settle_origin
from kedge.builds.copies.context import FileOrigin, open_context, open_host_files
from kedge.builds.states.build_place import BuildState
from kedge.builds.step_values import Base, CopyOrigin, RecipePlace, StepMount, refuse_recipe
from kedge.builds.steps.session import BuildSession, StageWaiter
from kedge.errors import FileProblem
from kedge.image.layers.directory_tree import FolderSource
from kedge.image.store.file_digests import FileDigests
from kedge.system.private_files import is_out_of_reach
from kedge.system.views import follow_links


@dataclass(slots=True)
class FileOrigins:
    """All origins of one build, each opened once."""

    session: BuildSession
    is_definition: bool
    _context: FileOrigin | None = None
    _named: dict[str, FileOrigin] = field(default_factory=dict)
    _images: dict[str, OpenedBase] = field(default_factory=dict)
    _flat: dict[str, Path] = field(default_factory=dict)
    _sent: dict[str, Path] = field(default_factory=dict)  # copies of a part of the context, by its path
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def find_state(self, origin: CopyOrigin, wait_for: StageWaiter, place: RecipePlace) -> BuildState | None:
        """The files of a stage or an image; None for files of this host."""
        if origin.stage is not None:
            return wait_for(origin.stage).state
        settled = settle_origin(origin, self.session.request.contexts, place)
        return BuildState(self._open_image(settled)) if isinstance(settled, Base) else None

    def _open_image(self, base: Base) -> OpenedBase:
        with self._lock:
            if base.reference not in self._images:
                base = replace(base, platform=self.session.request.platform)
                self._images[base.reference] = self.session.open_origin(base)
            return self._images[base.reference]

    def open_host_files(self, origin: CopyOrigin, place: RecipePlace) -> FileOrigin:
        """Files of this host: the context, one with a name, or for a definition file any."""
        with self._lock:
            settled = settle_origin(origin, self.session.request.contexts, place)
            if isinstance(settled, Path):
                return self._open_named(origin.name, settled)
            if self._context is None:
                session = self.session
                is_host = self.is_definition
                self._context = (
                    open_host_files(session.context, session.reach)
                    if is_host
                    else open_context(
                        session.context, session.recipe_path, session.request.output.path, reach=session.reach
                    )
                )
                self._context.known = self._open_digests()
            return self._context

    def _open_digests(self) -> FileDigests | None:
        """What earlier builds know of files; --no-cache reads them all again."""
        session = self.session
        if not session.request.use_cache:
            return None
        return FileDigests(session.store.layout, os.path.realpath(session.context))

    def _open_named(self, name: str, folder: Path) -> FileOrigin:
        if name not in self._named:
            self._named[name] = open_context(folder, reach=self.session.reach)
        return self._named[name]

    # -- mounts

    def digest_mount(self, mount: StepMount, place: RecipePlace) -> str:
        """What a bind from files of this host holds."""
        origin = self.open_host_files(mount.origin, place)
        tree = origin.read_tree(origin.locate(mount.source or "/"))
        if tree is None:
            raise refuse_recipe(place, f"{mount.source} is not in {origin.name}, or its .dockerignore leaves it out")
        return origin.digest_tree(tree)

    def find_folder(self, mount: StepMount, wait_for: StageWaiter, place: RecipePlace) -> Path:
        """The directory or file of this host that a bind shows."""
        state = self.find_state(mount.origin, wait_for, place)
        if state is None:
            return self._show(self.open_host_files(mount.origin, place), mount, place)
        return follow_inside(self.flatten(state), mount.source or "/", place)

    def _show(self, origin: FileOrigin, mount: StepMount, place: RecipePlace) -> Path:
        """Files of this host as a step sees them: themselves, or a copy.

        The copy is without those that .dockerignore names; and it is there where others could put a link in their place
        before they are mounted.
        """
        path = origin.locate(mount.source or "/")
        entry = origin.view.follow(path)
        tree, is_partial = origin.read_sent(path)
        if entry is None or tree is None:
            raise refuse_recipe(place, f"{mount.source} is not in {origin.name}, or its .dockerignore leaves it out")
        real = entry.path
        if not is_partial and is_out_of_reach(real):
            return Path(real)
        with self._lock:
            if real not in self._sent:
                from kedge.builds.states.roots import copy_nodes  # late: as below

                folder = self.session.place.make_folder("context")
                around = Node(NodeKind.DIRECTORY)  # what is copied may be one file
                around.children[b"it"] = tree
                self._sent[real] = copy_nodes(around, FolderSource(), folder / "sent") / "it"
            return self._sent[real]

    def flatten(self, state: BuildState) -> Path:
        """Put all files of a state into one directory, which only this build sees."""
        with self._lock:
            if state.key not in self._flat:
                from kedge.builds.states.roots import PrivateRoot  # late: only binds from stages need it

                directories = self.session.directories
                is_plain = not state.layers
                folder = directories.find_base(state) if is_plain else PrivateRoot(directories).make_folder(state)
                self._flat[state.key] = folder
            return self._flat[state.key]


def follow_inside(root: Path, path: str, place: RecipePlace) -> Path:
    """A path of an image as one of this host; its links do not lead out of the image."""

    def read_link(inner: str) -> str | None:
        outer = root / inner.lstrip("/")
        return os.readlink(outer) if outer.is_symlink() else None  # noqa: PTH115

    try:
        found = root / follow_links(path, read_link).lstrip("/")
    except OSError as problem:
        raise refuse_recipe(place, f"{path}: its links go in a circle in the image") from problem
    if not found.exists():
        raise FileProblem(f"{place}: {path} is not in the stage or image it is mounted from")
    return found
