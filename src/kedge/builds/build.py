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

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.base.secret_text import mask_value
from kedge.builds.bases.named_contexts import bind_login
from kedge.builds.convert_spec import convert_spec, names_image
from kedge.builds.host_reach import open_reach
from kedge.builds.recipe_input import RecipeInput, load_recipe
from kedge.builds.request import BuildDisplay, BuildRequest, BuildResult
from kedge.builds.results.deliver import deliver
from kedge.builds.results.finished_build import FinishedBuild
from kedge.builds.states.build_place import BuildPlace
from kedge.builds.states.build_state import StageResult
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
from kedge.image.workplace import Workplace
from kedge.system.files import explained, write_atomically

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
