# SPDX-License-Identifier: BSD-3-Clause
"""`kedge commit`: the changes in an overlay become a new image: the base and one layer above it.

The overlay is the directory of `kedge shell --fakeroot --overlay DIRECTORY IMAGE`, which remembers its image, an ext3
image, or the overlay of an instance. The layer is kept in the cache as the layers of builds are.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kedge.base.frozen import JsonValue, replace
from kedge.base.image_format import ImageFormat
from kedge.base.reference import Reference, Transport
from kedge.base.release import VERSION
from kedge.base.tree import Node, NodeKind, walk
from kedge.builds.bases.bases import OpenedBase, open_base
from kedge.builds.results.finished_build import FinishedBuild
from kedge.builds.results.image_owners import open_owners
from kedge.builds.results.overlay_copy import copy_ext3_overlay, copy_foreign_overlay
from kedge.builds.results.result_image import open_result
from kedge.builds.states.build_state import BuildState, StageResult, StepLayer
from kedge.builds.step_values import Base, Recipe, RecipePlace, StagePlan
from kedge.builds.typed_commands import (
    read_typed_commands,
    render_typed_definition,
    render_typed_dockerfile,
    select_commands,
)
from kedge.container.mounts.overlay_base import read_base
from kedge.container.record_commands import COMMANDS_FILE
from kedge.errors import FileProblem, UsageError
from kedge.image.layers.owners import OwnerLookup
from kedge.image.layers.tar_writer import LayerResult, write_layer
from kedge.image.layers.upper_directory import UpperOptions, is_of_fuse, read_upper
from kedge.image.layers.whiteouts import OPAQUE_NAME, WHITEOUT_PREFIX
from kedge.image.output_name import ImageOutput, choose_tag
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.image.write_image import choose_options, write_image
from kedge.system.files import explained
from kedge.system.foreign_trees import has_foreign_files
from kedge.system.tree_walk import ConfinedTree

_UPPER, _WORK = "upper", "work"
_MOST_COMMANDS = 16 << 20
_INSTANCE = "instance://"


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What to commit, on what base, and where the result goes."""

    overlay: str  # a directory, an ext3 image, or instance://NAME
    base: str = ""  # empty: the image that the overlay was used with
    target: ImageOutput | None = None
    force: bool = False
    epoch: int | None = None  # SOURCE_DATE_EPOCH


@dataclass(frozen=True, slots=True)
class Committed(JsonValue):
    """The new image."""

    json_names = (("form", "format"),)

    base: str
    output: Path
    form: ImageFormat
    size: int | None  # of a file; None for a directory
    changed: int  # files that were added or changed
    deleted: int


@dataclass(frozen=True, slots=True)
class _Overlay:
    """Where changes are, and what they were made on."""

    folder: Path  # with `upper` in it
    base: str
    is_of_fuse: bool = False  # fuse-overlayfs wrote it: `.wh.` files are deletions


@dataclass(frozen=True, slots=True)
class _CommittedStage:
    """The one stage of a commit, for who asks an image where it came from."""

    base: Base
    index: int = 0
    name: str = ""
    needs: tuple[int, ...] = ()

    def plan(self, section: Mapping[str, Any]) -> StagePlan:
        """No steps: the changes are there already."""
        return StagePlan((), section)


def commit(request: CommitRequest, workplace: Workplace, environ: Mapping[str, str]) -> Committed:
    """Write the new image; the target appears whole or not at all."""
    target = request.target
    assert target is not None  # without one there is only a recipe
    form = target.require_form()
    if (target.path / _UPPER).is_dir() and not (target.path / ".singularity.d").exists():
        words = " ".join(shlex.quote(str(word)) for word in (target.path, request.overlay))
        raise UsageError(
            f"'{target.path}' is given as the output, but it is an overlay",
            hint=f"the overlay comes first: kedge commit {words}",
        )
    target.refuse_existing(force=request.force)
    with _open_overlay(request, workplace, environ) as overlay, workplace.open_store() as store:
        base = _require_base(request, overlay)
        opened = open_base(_name_base(base), workplace, store)
        try:
            with open_owners(base, workplace) as owners:
                layer, counts = _store_layer(overlay, owners, store, request.epoch)
            image = open_result(_finish(request, overlay, opened, layer), store)
            tag = choose_tag(Reference.parse(base), form, target.tag)
            write_image(target.path, form, image, choose_options(workplace, force=request.force, tag=tag))
        finally:
            opened.close()
    size = None if form.is_directory else target.path.stat().st_size
    return Committed(base, target.path, form, size, *counts)


def print_recipe(request: CommitRequest, workplace: Workplace, environ: Mapping[str, str], kind: str) -> str:
    """The commands that were typed, as a definition file or a Dockerfile; raises where none were recorded."""
    with _open_overlay(request, workplace, environ) as overlay:
        commands = select_commands(read_typed_commands(_read_record(overlay.folder)))
        if not commands:
            raise UsageError(
                f"no commands are recorded in {request.overlay}",
                hint=f"start the shell with --record: kedge shell --record --overlay {request.overlay} IMAGE",
            )
        return _render(_require_base(request, overlay), commands, kind)


def _render(base: str, commands: list[str], kind: str) -> str:
    reference = Reference.parse(base)
    is_docker = reference.transport is Transport.DOCKER
    bare = base.removeprefix("docker://")
    if kind == "dockerfile":
        return render_typed_dockerfile(bare if is_docker else base, commands)
    if is_docker:
        header = [("Bootstrap", "docker"), ("From", bare)]
    elif reference.transport is Transport.FILE:
        header = [("Bootstrap", "localimage"), ("From", reference.path)]
    else:
        agent, _, name = base.partition(":")
        header = [("Bootstrap", agent), ("From", name.removeprefix("//"))]
    return render_typed_definition(header, commands)


def _require_base(request: CommitRequest, overlay: _Overlay) -> str:
    base = request.base or overlay.base
    if not base:
        raise UsageError(
            f"unknown which image {request.overlay} was used with", hint="name it: kedge commit --base IMAGE …"
        )
    return base


def _name_base(text: str) -> Base:
    reference = Reference.parse(text)
    is_file = reference.transport is Transport.FILE
    return Base(RecipePlace("--base", 1), "localimage" if is_file else "docker", reference.path if is_file else text)


@contextlib.contextmanager
def _open_overlay(request: CommitRequest, workplace: Workplace, environ: Mapping[str, str]) -> Iterator[_Overlay]:
    """The directory with the changes."""
    text, base = request.overlay, ""
    if text.startswith(_INSTANCE):
        text, base = _find_instance(text.removeprefix(_INSTANCE), environ)
    path = Path(text)
    with explained(path):
        is_folder, is_file = path.is_dir(), path.is_file()
    if is_file:
        with copy_ext3_overlay(path, workplace) as folder:
            yield _Overlay(folder, base, is_of_fuse=True)
        return
    if not is_folder or not (path / _UPPER).is_dir():
        problem = f"is not an overlay: it has no directory '{_UPPER}'" if path.exists() else "does not exist"
        raise FileProblem(
            f"{text} {problem}",
            hint=f"make changes first: kedge shell --fakeroot --overlay {text} IMAGE",
        )
    overlay = _Overlay(path, base or read_base(str(path)), is_of_fuse(path / _WORK))
    if not has_foreign_files(path / _UPPER):
        yield overlay
        return
    with copy_foreign_overlay(path, workplace) as folder:
        yield replace(overlay, folder=folder)


def _find_instance(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The overlay of a running instance, and its image."""
    from kedge.container.processes.instance_records import InstanceDirectory  # late: only where one is named

    instance = InstanceDirectory(environ).find(name)
    if not instance.overlay:
        raise UsageError(
            f"instance '{name}' has no overlay that keeps its changes",
            hint=f"start it with one: kedge instance start --overlay DIRECTORY {instance.image} {name}",
        )
    return instance.overlay, instance.image


def _store_layer(
    overlay: _Overlay, owners: OwnerLookup, store: Store, epoch: int | None
) -> tuple[StepLayer, tuple[int, int]]:
    left_out = frozenset((COMMANDS_FILE.encode(),))
    # an ordinary user owns everything in the overlay; what root wrote there has the owners that it shows
    options = UpperOptions(left_out, owners, all_root=os.geteuid() != 0, has_whiteout_files=overlay.is_of_fuse)
    tree, source = read_upper(overlay.folder / _UPPER, options)
    with contextlib.closing(source):
        counts = _count(tree)
        if not any(counts):
            raise UsageError(f"nothing was changed in the overlay {overlay.folder}", hint="there is nothing to commit")
        tree.layer = -1  # the root itself is the base's

        def write(file: BinaryIO) -> LayerResult:
            return write_layer(tree, source, file, "zstd", holds_whiteouts=True, epoch=epoch)

        return StepLayer(*store.add_layer(write)), counts


def _count(tree: Node) -> tuple[int, int]:
    """Files that were added or changed, and those that were deleted."""
    names = [
        path.rpartition(b"/")[2]
        for path, node in walk(tree)
        if node.kind is not NodeKind.DIRECTORY or not node.children
    ]
    marks = [name for name in names if name.startswith(WHITEOUT_PREFIX)]
    return len(names) - len(marks), sum(name != OPAQUE_NAME for name in marks)


def _finish(request: CommitRequest, overlay: _Overlay, opened: OpenedBase, layer: StepLayer) -> FinishedBuild:
    commands = select_commands(read_typed_commands(_read_record(overlay.folder)))
    created = int(time.time()) if request.epoch is None else request.epoch
    text = "; ".join(commands)[:1000] if commands else "the changes of an overlay"
    state = BuildState(opened).after(f"kedge commit: {text}", layer, created=created)
    result = StageResult(state, opened.section, is_decorated=opened.is_decorated)
    base = _require_base(request, overlay)
    text = _render(base, commands, "definition")
    recipe = Recipe("definition", "commit", text, (_CommittedStage(_name_base(base)),))
    note = {
        "kedge": VERSION,
        "recipe": {"kind": "commit", "name": ""},
        "bases": [{"reference": opened.reference, "digest": opened.digest or opened.key}],
        "steps": [str(entry["created_by"]) for entry in state.history],
    }
    return FinishedBuild(result, recipe, json.dumps(note, indent=1), created)


def _read_record(folder: Path) -> bytes:
    """What programs in the container may have put there: a file of that tree, and no link."""
    upper = ConfinedTree(os.fsencode(folder / _UPPER), follows=False)
    return upper.read(COMMANDS_FILE.encode(), _MOST_COMMANDS) or b""
