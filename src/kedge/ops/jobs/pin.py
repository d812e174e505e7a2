# SPDX-License-Identifier: BSD-3-Clause
"""Pinning: what a tag means when a job is submitted is what all of its nodes and ranks run, however long it waits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kedge.errors import AccessDenied, AuthenticationFailed, ImageNotFound, KedgeError, NoMatchingPlatform
from kedge.frozen import frozen, replace
from kedge.model.progress import Silent
from kedge.ops.jobs.image import NOW, StagedImage
from kedge.settings import Settings

if TYPE_CHECKING:
    from kedge.model.digest import Digest
    from kedge.model.reference import Reference

# Imports inside the functions below are late: images that are files, and jobs without one, need none of them.

_IN_VAIN = (AccessDenied, AuthenticationFailed, ImageNotFound, NoMatchingPlatform)  # the pull would fail as well


class _Listener(Silent):
    """Keeps warnings, which are said with those of the plan."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        """Keep it."""
        self.warnings.append(message)


@frozen
class _Pin:
    """What was found out about a tag; nothing where there was nothing to ask."""

    reference: str = ""  # the job's own words with the digest behind them
    path: str = ""  # an image of that tag which was pulled before, where the registry did not answer
    warnings: tuple[str, ...] = ()


def pin_image(word: str, image: StagedImage, settings: Settings, architecture: str) -> _Pin:
    """Look a tag up once, for nodes of `architecture`; empty: this machine's. `word` is how the job names the image."""
    reference = _find_tagged(image)
    if reference is None:
        return _Pin()
    try:
        digest, warnings = _ask(reference, settings, architecture)
    except KedgeError as problem:
        if isinstance(problem, _IN_VAIN) and image.when == NOW:
            raise
        return _do_without(problem, word, image)
    return _Pin(_add_digest(word, reference, digest), warnings=warnings)


def _find_tagged(image: StagedImage) -> Reference | None:
    from kedge.model.image_argument import is_reference
    from kedge.model.reference import Reference, Transport

    name = image.reference or (image.path if is_reference(image.path) else "")
    reference = Reference.parse(name) if name else None
    if reference is None or reference.digest or reference.transport not in (Transport.DOCKER, Transport.ORAS):
        return None
    return reference


def _ask(reference: Reference, settings: Settings, architecture: str) -> tuple[Digest, tuple[str, ...]]:
    """The digest of the manifest for these nodes; a registry that does not answer is not waited for."""
    from kedge.ops.setup.workplace import LOOKUP_PATIENCE, Workplace
    from kedge.ops.sources.resolve import resolve

    said = _Listener()
    asked = replace(settings, retries=0, architecture=architecture or settings.architecture)
    workplace = Workplace(asked, said).hurry()
    with workplace.open_store() as store:
        found = resolve(reference, workplace, store, patience=LOOKUP_PATIENCE)
    return found.digest, tuple(said.warnings)


def _add_digest(word: str, reference: Reference, digest: Digest) -> str:
    from kedge.model.image_argument import is_reference

    text = word if is_reference(word) else f"docker://{word}"
    return f"{text}{'' if reference.tag else ':latest'}@{digest}"


def _do_without(problem: KedgeError, word: str, image: StagedImage) -> _Pin:
    """The newest image of the tag that was pulled before; else the tag itself, for whoever pulls it."""
    pulled = _list_pulled(Path(image.path)) if image.reference else []
    if pulled:
        said = f"{problem.message}; the job runs {pulled[-1]}, which may not be what {word} means now"
        return _Pin(path=str(pulled[-1]), warnings=(said,))
    return _Pin(warnings=(f"{problem.message}; the job runs whatever {word} means when the image is pulled",))


def _list_pulled(target: Path) -> list[Path]:
    """Images of the same tag, oldest first: by their digest, or from before jobs were pinned."""
    try:
        found = [each for each in target.parent.iterdir() if _is_of_tag(each.name, target.name)]
        return sorted(found, key=lambda each: each.stat().st_mtime)
    except OSError:
        return []


def _is_of_tag(name: str, wanted: str) -> bool:
    stem, _, digest = name.removesuffix(".sif").rpartition("@")
    return name == wanted or (stem == wanted.removesuffix(".sif") and digest != "")
