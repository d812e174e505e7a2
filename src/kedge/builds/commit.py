# SPDX-License-Identifier: BSD-3-Clause
"""`kedge commit`: the changes in an overlay become a new image: the base and one layer above it.

The overlay is the directory of `kedge shell --fakeroot --overlay DIRECTORY IMAGE`, which remembers its image, an ext3
image, or the overlay of an instance. The layer is kept in the cache as the layers of builds are.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.base.image_format import ImageFormat
from kedge.base.reference import Reference, Transport
from kedge.base.release import VERSION
from kedge.base.tree import Node, NodeKind, find, walk
from kedge.builds.bases.bases import OpenedBase, open_base
from kedge.builds.result_image import FinishedBuild, open_result
from kedge.builds.states.build_place import BuildState, StageResult, StepLayer
from kedge.builds.step_values import Base, Recipe, RecipePlace, StagePlan
from kedge.container.mounts.overlay_base import read_base
from kedge.container.record_commands import COMMANDS_FILE
from kedge.container.start.step import run_step
from kedge.errors import FileProblem, UnsupportedFormat, UsageError
from kedge.image.image_file import identify
from kedge.image.layers.owners import OwnerLookup, OwnerTable
from kedge.image.layers.privileges import make_mode_usable
from kedge.image.layers.tar_writer import LayerResult, write_layer
from kedge.image.layers.upper_directory import UpperOptions, is_of_fuse, read_upper
from kedge.image.layers.whiteouts import OPAQUE_NAME, WHITEOUT_PREFIX
from kedge.image.output_name import ImageOutput, choose_tag
from kedge.image.sources.classify import SourceKind, classify
from kedge.image.sources.image_source import TreeImage
from kedge.image.sources.open_local import open_any_image
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.image.write_image import choose_options, write_image
from kedge.system.confined_paths import remove_tree
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


# Commands that were typed in a shell as a recipe: those that succeeded, without those that only look.
#
# A recipe must run by itself: an installer that asked gets the option that answers for it.

_LOOKS = frozenset((
    *("ls", "ll", "la", "cat", "less", "more", "head", "tail", "pwd", "history", "exit", "logout", "clear", "man"),
    *("info", "which", "whereis", "type", "echo", "printf", "env", "set", "printenv", "id", "whoami", "hostname"),
    *("uname", "date", "top", "htop", "ps", "df", "du", "free", "nvidia-smi", "vi", "vim", "nano", "emacs", "file"),
    *("stat", "find", "grep", "tree", "help", "alias", "fg", "bg", "jobs"),
))  # fmt: skip
_QUERIES = {
    "pip": ("list", "show", "freeze", "check", "config", "cache", "index"),
    "pip3": ("list", "show", "freeze", "check", "config", "cache", "index"),
    "apt": ("list", "search", "show", "policy"),
    "apt-get": ("check",),
    "apt-cache": ("search", "policy", "show"),
    "conda": ("list", "info", "search", "env list"),
    "git": ("status", "log", "diff", "show"),
}
_WRITES = re.compile(r"(?<![0-9&])>|\|\s*(?:tee|sh|bash|xargs)\b|`|\$\(|&&|;|\|\|")
# who asks, for what, and the answer that is there already
_ASKERS = (
    (r"(?:apt|apt-get)(?: -\S+)*", "install|upgrade|dist-upgrade|remove|purge|autoremove", r"-\w*y\w*|--yes"),
    ("yum|dnf|zypper", "install|update|remove", r"-\w*y\w*|--assumeyes"),
    ("conda|mamba", "install|create|update|remove", "-y|--yes"),
)
_ASKS = tuple(
    re.compile(rf"^((?:\w+=\S+ )*(?:sudo )?(?:{program})) ({action})\b(?!.* (?:{answer})(?: |$))")
    for program, action, answer in _ASKERS
)


@frozen
class TypedCommand:
    """One command of a shell."""

    status: int
    directory: str  # after it
    text: str


def read_typed_commands(data: bytes) -> list[TypedCommand]:
    """The records that `kedge shell --record` leaves; damaged ones are passed over."""
    commands = []
    for record in data.split(b"\0"):
        parts = record.decode("utf-8", "replace").split("\t", 2)
        if len(parts) == 3 and parts[0].isdecimal() and parts[2].strip():
            commands.append(TypedCommand(int(parts[0]), parts[1], parts[2].strip()))
    return commands


def select_commands(commands: Sequence[TypedCommand]) -> list[str]:
    """The commands that belong into a recipe, in their order."""
    return [_answer(command.text) for command in commands if command.status == 0 and not _only_looks(command.text)]


def _only_looks(text: str) -> bool:
    if _WRITES.search(text):
        return False
    try:
        words = shlex.split(text)
    except ValueError:  # quotes that do not match: a heredoc, or something else that is not simple
        return False
    if not words or words[0] in _LOOKS or text.startswith("#"):
        return True
    return any(" ".join(words[1:]).startswith(query) for query in _QUERIES.get(words[0], ()))


def _answer(text: str) -> str:
    for pattern in _ASKS:
        match = pattern.match(text)
        if match is not None and not re.search(r" (?:-\w*y\w*|--yes)(?: |$)", match[0]):
            return f"{match[0]} -y{text[match.end() :]}"
    return text


def render_typed_definition(header: Sequence[tuple[str, str]], commands: Sequence[str]) -> str:
    """A definition file: one %post, in which a `cd` holds for what follows."""
    lines = [f"{key}: {value}" for key, value in header]
    # lines of a heredoc stay as they are: one that ends it must not be indented
    body = [command if "\n" in command else f"    {command}" for command in commands]
    return "\n".join([*lines, "", "%post", *(body or ["    true"]), ""])


def render_typed_dockerfile(base: str, commands: Sequence[str]) -> str:
    """A Dockerfile: one RUN, in which a `cd` holds for what follows; a heredoc, as commands may have several lines."""
    name = "END" if not any(re.search(r"^END$", command, re.MULTILINE) for command in commands) else "END_OF_COMMANDS"
    body = "".join(f"{command}\n" for command in commands)
    return f"FROM {base}\nRUN <<'{name}'\nset -e\n{body}{name}\n" if commands else f"FROM {base}\n"


# The owners that files of an image have: a changed file keeps its own, although one user made all changes.
#
# Only images whose tree can be read at once are asked: SIF and SquashFS files. Layers would have to be read whole.


class TreeOwners:
    """Owners by path, from the tree of an image."""

    def __init__(self, root: Node) -> None:
        self._root = root

    def restore(self, path: bytes, node: Node, *, has_owner: bool) -> None:
        """Give a changed file the owner that its path had, unless it has one, and its mode if that was not changed."""
        before = find(self._root, path)
        if before is None or before.kind is not node.kind:
            return
        if not has_owner:
            node.uid, node.gid = before.uid, before.gid
        if node.mode == make_mode_usable(before.kind, before.mode):
            node.mode = before.mode


@contextlib.contextmanager
def open_owners(base: str, workplace: Workplace) -> Iterator[OwnerLookup]:
    """The owners of a base, where they can be had without reading it whole; else none are known."""
    reference = Reference.parse(base)
    if classify(reference).kind not in (SourceKind.SIF_FILE, SourceKind.SQUASHFS_FILE):
        yield OwnerTable()
        return
    image = open_any_image(reference, workplace)
    try:
        yield TreeOwners(image.root) if isinstance(image, TreeImage) else OwnerTable()
    finally:
        image.close()


# The changes in an overlay that this process cannot read, copied by a container that can.
#
# An ordinary user can mount an ext3 image in a container alone; and what `--fakeroot` with subordinate ids wrote
# belongs to users that are root's to read in such a container only. The host's `cp` keeps the marks of overlays.

_SOURCE, _TARGET = "/mnt", "/srv"
_PACKED = "host:cp"  # an image of that one program


@contextlib.contextmanager
def copy_ext3_overlay(path: Path, workplace: Workplace) -> Iterator[Path]:
    """A directory with the overlay's `upper`, which goes with the block."""
    if identify(str(path)).kind != "ext3":
        raise UnsupportedFormat(
            f"{path} is not an overlay: it is neither a directory nor an ext3 image",
            hint="name the directory or image that was used with --overlay",
        )
    source = f"{path.resolve()}:{_SOURCE}:image-src=/,ro"
    with _copy(source, workplace, ("--containall",), ("-a",)) as folder:
        yield folder


@contextlib.contextmanager
def copy_foreign_overlay(path: Path, workplace: Workplace) -> Iterator[Path]:
    """Yield a copy of a directory in which files belong to subordinate ids; in the copy all are ours."""
    options = ("--containall", "--fakeroot")
    with _copy(f"{path.resolve()}:{_SOURCE}:ro", workplace, options, ("-a", "--no-preserve=ownership")) as folder:
        yield folder


@contextlib.contextmanager
def _copy(source: str, workplace: Workplace, options: tuple[str, ...], flags: tuple[str, ...]) -> Iterator[Path]:
    place = workplace.settings.temporary_directory
    with explained(place):
        folder = Path(tempfile.mkdtemp(prefix="kedge-commit-", dir=place))
    try:
        words = ["cp", *flags, "--", f"{_SOURCE}/upper", f"{_TARGET}/"]
        done = run_step(_PACKED, words, binds=(source, f"{folder}:{_TARGET}"), options=(*options, "--no-home"))
        if done.status:
            what = source.partition(":")[0]
            raise FileProblem(f"cannot copy the changes out of {what}: {done.text.strip()[-500:]}")
        yield folder
    finally:
        remove_tree(folder)
