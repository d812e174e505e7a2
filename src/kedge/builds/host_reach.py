# SPDX-License-Identifier: BSD-3-Clause
"""What a recipe may take of this host, and what is said of it: the one place that decides it.

Definition files take any file that the user can read, as with Apptainer. What lies outside of the current directory and
the recipe's directory is named, and refused with --contained. Places of secrets are taken by nobody, also not from the
context of a Dockerfile, unless --context names them. All paths here are resolved: no part of them is a link.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.counting import count_things
from kedge.base.progress import Progress
from kedge.builds.request import BuildRequest, HostItem
from kedge.builds.step_values import RecipePlace, refuse_recipe
from kedge.errors import FileProblem, InvalidRecipe, UsageError
from kedge.system.host.private_places import PrivatePlaces, Standing

_MOST_NAMED = 100  # lines; a recipe with more of them has shown what it is


@dataclass(slots=True)
class HostReach:
    """The reach of one recipe; its methods may be called from the threads of several stages."""

    progress: Progress
    places: PrivatePlaces
    folder: str  # the current directory, or the one that was named as the context
    recipe_folder: str = ""  # empty: the recipe comes from standard input
    allowed: tuple[str, ...] = ()  # --context
    named: tuple[str, ...] = ()  # other directories of the command line, for which it names secrets all the same
    is_contained: bool = False
    file: str = ""  # what the recipe is called in lines
    own: tuple[str, ...] = field(init=False)  # directories whose files need no mention
    _items: dict[tuple[str, str], HostItem] = field(default_factory=dict)  # by path and state
    _is_settled: bool = False  # whether lines are printed as they come
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        named = [path for path in (self.folder, self.recipe_folder) if path]
        self.own = tuple(path for path in named if not self.places.explain_width(path))

    @property
    def items(self) -> tuple[HostItem, ...]:
        """Return what was taken from elsewhere, and what was left out, so far."""
        return tuple(self._items.values())

    # -- what lies outside

    def is_own(self, path: str) -> bool:
        """Whether a path is in a directory of the recipe's or was named by the user."""
        return any(_is_in(path, folder) for folder in (*self.own, *self.allowed))

    def take(self, path: str, source: str, place: RecipePlace | None) -> None:
        """A file or directory is about to be copied: named if it lies outside, then refused if that must not be."""
        if self.is_own(path):
            return
        item = HostItem("files", place.line if place else 0, source, path)
        if self._is_settled and self.is_contained:
            raise self._refuse([item])
        self.add(item)

    def add(self, item: HostItem) -> None:
        """Keep it for the lists, once, and say it if the lines before the first step are out."""
        with self._lock:
            if (item.path, item.state) in self._items:
                return
            self._items[item.path, item.state] = item
            says = self._is_settled and len(self._items) <= _MOST_NAMED
        if says:
            self.progress.note(self._describe(item))

    def settle(self) -> None:
        """Say all that was found so far, before the first step; refuse it with --contained."""
        self._is_settled = True
        items = self.items
        taken = [item for item in items if item.state == "taken" and item.section == "files"]
        if self.is_contained and taken:
            raise self._refuse(taken)
        for item in items[:_MOST_NAMED]:
            self.progress.note(self._describe(item))
        if len(items) > _MOST_NAMED:
            self.progress.note(f"and {count_things(len(items) - _MOST_NAMED, 'further file')}: --json lists them")

    def _refuse(self, items: list[HostItem]) -> InvalidRecipe:
        first = items[0]
        more = f", and {count_things(len(items) - 1, 'further file')}" if len(items) > 1 else ""
        return refuse_recipe(
            RecipePlace(self.file, first.line),
            f"--contained refuses {first.path}{more}: {self.explain_outside()}",
            f"to allow it: --context {shlex.quote(first.path)}; to allow all: --no-contained",
        )

    def _describe(self, item: HostItem) -> str:
        """Describe an item in one line."""
        place = f"{RecipePlace(self.file, item.line)}: " if item.line else ""
        if item.state == "left out":
            return f"{place}left out {item.path}, which holds secrets; to take it: --context {shlex.quote(item.path)}"
        if item.section != "files":
            return f"{place}%{item.section} {item.source}"
        through = f" (as {item.source})" if item.source not in ("", item.path) else ""
        return f"{place}%files takes {item.path}{through}, {self.explain_outside()}"

    def explain_outside(self) -> str:
        """Outside of what."""
        if self.own:
            return f"outside of {' and '.join(dict.fromkeys(self.own))}"
        return f"and the current directory is not the recipe's own: {self.places.explain_width(self.folder)}"

    # -- secrets

    def admits(self, path: str, standing: Standing) -> bool:
        """Whether a path may be read: it belongs to no place of secrets, or the user named that place."""
        return not standing.secret or any(
            _is_in(path, context) and self._is_named(context, standing.secret)
            for context in (*self.allowed, *self.named)
        )

    def _is_named(self, context: str, secret: str) -> bool:
        """Whether a directory of the command line is that place itself or in it: a home around it does not name it."""
        return _is_in(context, secret) or self.places.judge(context).secret == secret

    def require_admitted(self, path: str, source: str) -> Standing:
        """The standing of a path that a recipe names itself; raises InvalidRecipe for a place of secrets."""
        standing = self.places.judge(path)
        if not self.admits(path, standing):
            alias = f"{source} is {path}, and " if source not in ("", path) else ""
            raise InvalidRecipe(
                f"{alias}{standing.secret} holds secrets: kedge does not copy them",
                hint=f"if the image is to have them: --context {shlex.quote(standing.secret)}",
            )
        return standing

    def leave_out(self, path: str, place: RecipePlace | None = None) -> None:
        """Say that a place of secrets was met and left out."""
        self.add(HostItem("files", place.line if place else 0, "", path, "left out"))


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def open_reach(request: BuildRequest, context: Path, recipe: Path | None, progress: Progress) -> HostReach:
    """The reach of a recipe that the request names; `context` is the directory that its files begin at."""
    if request.is_contained and request.uses_host:
        raise UsageError("--contained and --setup-on-host exclude each other", hint="leave out one of them")
    updated = [request.output.path] if request.updates and request.output.path else []
    return HostReach(
        progress=progress,
        places=PrivatePlaces(os.environ),
        folder=os.path.realpath(context),
        recipe_folder=os.path.realpath(recipe.parent) if recipe is not None else "",
        allowed=resolve_allowed((*request.allowed, *updated)),
        named=resolve_named(request.contexts, request.context),
        is_contained=request.is_contained,
        file=str(recipe) if recipe is not None else "standard input",
    )


def resolve_allowed(paths: tuple[Path, ...]) -> tuple[str, ...]:
    """What --context names."""
    for path in paths:
        if not path.exists():
            raise FileProblem(f"--context {path}: no such file or directory", context={"path": str(path)})
    return tuple(os.path.realpath(path) for path in paths)


def resolve_named(contexts: Mapping[str, str], context: Path | None) -> tuple[str, ...]:
    """Other directories that the command line names: those of --build-context, and the context itself."""
    folders = [value.removeprefix("local:") for value in contexts.values() if "://" not in value]
    folders += [str(context)] if context is not None else []
    return tuple(os.path.realpath(path) for path in folders)
