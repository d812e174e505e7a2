# SPDX-License-Identifier: BSD-3-Clause
"""Builds an image from a recipe, or converts one: what `kedge build` does.

The stages that the target needs are built by `stage_builder`, side by side where they can be. Their result is an image
of layers, which is written, delivered and pushed as any other image is.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kedge.base.digest import Digest
from kedge.base.frozen import frozen, replace
from kedge.base.image_format import ImageFormat
from kedge.base.manifest import MAXIMUM_MANIFEST, Manifest, parse_manifest
from kedge.base.release import VERSION
from kedge.base.secret_text import mask_value
from kedge.builds.bases.named_contexts import bind_login
from kedge.builds.convert_spec import convert_spec, names_image
from kedge.builds.host_reach import open_reach
from kedge.builds.recipe_input import RecipeInput, load_recipe
from kedge.builds.request import BuildDisplay, BuildRequest, BuildResult
from kedge.builds.result_image import FinishedBuild
from kedge.builds.states.build_place import BuildPlace, StageResult
from kedge.builds.step_values import Recipe, Stage
from kedge.builds.steps.build_log import BuildLog, choose_log_folder
from kedge.builds.steps.host_scripts import name_host_files
from kedge.builds.steps.origins import FileOrigins
from kedge.builds.steps.session import BuildSession, StageWaiter
from kedge.builds.steps.stage_builder import StageBuilder
from kedge.builds.steps.stages import list_needed, name_stages, run_stages
from kedge.errors import CorruptImage, DigestMismatch, FileProblem, InvalidRecipe, NoSpace
from kedge.image.formats.go_json import clean_text
from kedge.image.output_name import ImageOutput
from kedge.image.store.build_steps import StepRecord
from kedge.image.store.images import Handing
from kedge.image.workplace import Workplace
from kedge.system.files import explained, write_atomically
from kedge.system.tree_walk import measure_files

if TYPE_CHECKING:
    from kedge.image.sources.image_source import LayeredImage

_ASKING = ("always", "newer")  # policies that take what the registry has now, whatever the lock file says


def build(request: BuildRequest, workplace: Workplace, display: BuildDisplay) -> BuildResult:
    """Build what the request names; a step that fails is raised as BuildFailed, and nothing half-made is left.

    A cache that cannot be written is done without, unless the result is to stay in it.
    """
    if names_image(request):
        return convert_spec(request, workplace)
    source = load_recipe(request, workplace, os.environ)
    workplace = bind_login(workplace, request, source.recipe)
    if request.output.path is not None:
        ImageOutput(request.output.path, request.output.form).refuse_existing(force=request.output.force)
    try:
        return _build_with(workplace, request, display, source)
    except (FileProblem, NoSpace) as problem:
        if request.output.path is None and not request.output.push:
            raise
        return _build_with(workplace.go_around_cache(problem), request, display, source)


def _build_with(workplace: Workplace, request: BuildRequest, display: BuildDisplay, source: RecipeInput) -> BuildResult:
    """Build; where a layer in the cache turns out to be damaged, it is dropped, and the build begins once more."""
    with open_session(request, workplace, display, source) as session:
        try:
            return _build(session, source)
        except (CorruptImage, DigestMismatch):
            if not session.drop_damaged_layers():
                raise
    workplace.progress.warn("a layer in the cache was damaged: kedge makes it again")
    with open_session(request, workplace, display, source) as session:
        return _build(session, source)


def _build(session: BuildSession, source: RecipeInput) -> BuildResult:
    """Build once, and deliver the result."""
    began = time.monotonic()
    request = session.request
    result = _run(session, source.recipe)
    created = result.state.created if request.epoch is None else request.epoch
    result = replace(result, section=_add_labels(result, request))
    finished = FinishedBuild(result, source.recipe, write_note(source.recipe, session, result), created)
    delivered = deliver(finished, session)
    _keep_lock(session)
    return BuildResult(
        reference=request.output.tag or str(request.output.path or delivered.digest),
        digest=str(delivered.digest),
        path=request.output.path,
        size=delivered.size,
        seconds=time.monotonic() - began,
        steps=tuple(session.outcomes),
        log=session.log.path,
        warnings=(*source.warnings, *result.warnings),
        host=session.reach.items,
    )


@contextlib.contextmanager
def open_session(
    request: BuildRequest, workplace: Workplace, display: BuildDisplay, source: RecipeInput
) -> Iterator[BuildSession]:
    """What the stages of one build share; nothing is written before a step asks for it."""
    with contextlib.ExitStack() as closing:
        store = closing.enter_context(workplace.open_store())
        place = closing.enter_context(BuildPlace(workplace))
        log = BuildLog(request.log, choose_log_folder(os.environ), workplace.progress.warn)
        closing.callback(log.close)
        marks = closing.enter_context(contextlib.ExitStack())
        locked = read_lock(request.lock) if request.lock and request.pull not in _ASKING else {}
        reach = open_reach(request, source.context, source.path, workplace.progress)
        yield BuildSession(
            request,
            workplace,
            store,
            display,
            place,
            log=log,
            context=source.context,
            recipe_path=source.path,
            reach=reach,
            marks=marks,
            locked=locked,
        )


def _run(session: BuildSession, recipe: Recipe) -> StageResult:
    """Build the target stage and what it needs."""
    origins = FileOrigins(session, recipe.kind == "definition")
    needed = list_needed(recipe.stages, recipe.target)
    titles = name_stages(needed)
    name_host_files(session, origins, needed)

    def work(stage: Stage, wait_for: StageWaiter) -> StageResult:
        return StageBuilder(session, stage, origins, wait_for, titles[stage.index]).run()

    return run_stages(needed, work, session.cancellation)[recipe.target.index]


def _keep_lock(session: BuildSession) -> None:
    """Note which digests the bases had."""
    if session.request.lock is not None:
        bases = {base.reference: base.digest for base in session.bases if base.reference and base.digest}
        write_lock(session.request.lock, {**session.locked, **bases})


def _add_labels(result: StageResult, request: BuildRequest) -> dict[str, object]:
    section = dict(result.section)
    if request.labels:
        section["Labels"] = {**(section.get("Labels") or {}), **request.labels}
    return section


# What an image says of its build: bases with their digests, steps, arguments, and the kedge that built it.


def write_note(recipe: Recipe, session: BuildSession, result: StageResult) -> str:
    """Return the note as JSON; values of secrets are no part of it."""
    bases = {base.reference: base.digest or base.key for base in session.bases if base.reference}
    document: dict[str, object] = {
        "kedge": VERSION,
        "recipe": {"kind": recipe.kind, "name": recipe.name},
        "arguments": _list_arguments(session.request),
        "bases": [{"reference": name, "digest": digest} for name, digest in sorted(bases.items())],
        "steps": [str(entry["created_by"]) for entry in result.state.history],
        "target": session.request.target or None,
    }
    if session.request.sections != ("all",):
        document["sections"] = list(session.request.sections)
    return clean_text(json.dumps(document, indent=1, ensure_ascii=False))


def _list_arguments(request: BuildRequest) -> dict[str, str]:
    return {name: mask_value(name, value) for name, value in sorted(request.arguments.items())}


# The lock file of a build: which digests the names of its bases meant, so that the next build takes the same.

_FORMAT = 1
_LARGEST = 1 << 20


def read_lock(path: Path) -> dict[str, str]:
    """The digests in a lock file by reference; none where there is no file."""
    if not path.exists():
        return {}
    with explained(path), path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    try:
        document = json.loads(data)
        bases = document["bases"]
        if document["version"] != _FORMAT or not isinstance(bases, dict):
            raise ValueError(document["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidRecipe(
            f"{path} is not a lock file of kedge",
            context={"file": str(path)},
            hint="remove it, and the next build with --lock writes it anew",
        ) from None
    return {str(name): str(digest) for name, digest in bases.items()}


def write_lock(path: Path, bases: Mapping[str, str]) -> None:
    """Write the digests, unless the file has them."""
    if bases == read_lock(path):
        return
    document = {"version": _FORMAT, "bases": dict(sorted(bases.items()))}
    write_atomically(path, json.dumps(document, indent=2).encode() + b"\n")


# Hands over what was built: a file or directory in any format, a name in the cache, a push to a registry.
#
# A SIF goes through the cache as a pull's does: the same build gives it a second time without writing it again.

# Imports inside the methods below are late for start-up cost: an image that the cache has needs none of them.

_FORMAT_VERSION = 3  # raise it when the written bytes change
_DIGEST = "digest"


@frozen
class Delivered:
    """The image that was handed over."""

    digest: Digest  # of its manifest
    size: int


def deliver(build: FinishedBuild, session: BuildSession) -> Delivered:
    """Write, name and push the image as the request says."""
    return _Delivery(build, session).run()


class _Delivery:
    def __init__(self, build: FinishedBuild, session: BuildSession) -> None:
        self._build = build
        self._session = session
        self._key = build.key
        self._digest: Digest | None = None
        self._recalled: Digest | None = None  # from the record of an earlier build
        self._image: LayeredImage | None = None

    def run(self) -> Delivered:
        output = self._session.request.output
        size = 0
        if output.path is not None:
            size = self._write(output.path)
        if output.tag and (output.push or output.path is None):
            named = self._name()
            size = size or named
        return Delivered(self._find_digest(), size)

    def _open(self) -> LayeredImage:
        from kedge.builds.result_image import open_result

        if self._image is None:
            self._image = open_result(self._build, self._session.store)
        return self._image

    def _write(self, target: Path) -> int:
        output, workplace = self._session.request.output, self._session.workplace
        if output.form is not ImageFormat.SIF:
            from kedge.image.write_image import choose_options, write_image

            image = self._open()
            self._digest = image.manifest.digest
            options = choose_options(workplace, force=output.force, tag=output.tag or None)
            write_image(target, output.form, image, options)
            return _sum_layers(image.manifest) if output.form is ImageFormat.OCI else _measure(target)
        key = f"build {self._key} {workplace.packing} v{_FORMAT_VERSION}"
        wish = Handing(target, output.force, workplace.settings.link_mode)
        store = self._session.store
        if store.deliver(key, wish) is None:
            store.build_into(key, self._write_sif, wish, keep=not workplace.settings.disable_cache)
        return target.stat().st_size

    def _write_sif(self, file: BinaryIO) -> None:
        from kedge.image.write_image import choose_options, write_sif

        image = self._open()
        self._digest = image.manifest.digest
        write_sif(file, image, choose_options(self._session.workplace))

    def _name(self) -> int:
        """Give the image its names in the cache; bytes of its layers."""
        from kedge.image.local_names import name_image

        output, workplace, store = self._session.request.output, self._session.workplace, self._session.store
        tags = (output.tag, *output.further_tags)
        manifest = self._find_whole() or self._keep()
        self._digest = manifest.digest
        for tag in tags:
            name_image(tag, manifest.digest, workplace, store)
        if output.push:
            from kedge.image.local_names import read_name
            from kedge.image.push import push_opened

            for tag in tags:
                push_opened(self._open(), read_name(tag), workplace, store)
        return _sum_layers(manifest)

    def _find_whole(self) -> Manifest | None:
        """The manifest that an earlier build of the same gave, if the cache still has all that it names."""
        digest, store = self._recall_digest(), self._session.store
        raw = store.read_blob(digest, MAXIMUM_MANIFEST) if digest else None
        manifest = parse_manifest(raw) if raw is not None else None
        if not isinstance(manifest, Manifest):
            return None
        parts = (manifest.config, *manifest.layers)
        if not all(map(store.blobs.is_present, parts)):
            return None
        for part in parts:
            store.blobs.touch(part.digest)
        return manifest

    def _keep(self) -> Manifest:
        from kedge.builds.result_image import keep_in_store

        image = self._open()
        keep_in_store(image, self._session.store)
        return image.manifest

    def _find_digest(self) -> Digest:
        """The digest of the manifest, from the record of an earlier build where nothing was opened."""
        digest = self._digest or self._recall_digest() or self._open().manifest.digest
        if digest != self._recall_digest():
            self._session.store.steps.write(StepRecord(self._key, None, None, "image", {_DIGEST: str(digest)}))
        return digest

    def _recall_digest(self) -> Digest | None:
        if self._recalled is None:
            known = self._session.store.steps.find(self._key)
            text = known.extra.get(_DIGEST) if known else None
            self._recalled = Digest.parse(text) if isinstance(text, str) else None
        return self._recalled


def _sum_layers(manifest: Manifest) -> int:
    return sum(layer.size for layer in manifest.layers)


def _measure(target: Path) -> int:
    """Bytes of a file, or of all files in a directory."""
    if not target.is_dir():
        return target.stat().st_size
    return measure_files(target)
