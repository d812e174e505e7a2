# SPDX-License-Identifier: BSD-3-Clause
"""Pins the tag of a job's image to its digest at submission: all nodes and ranks run that image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen, replace
from kedge.base.progress import Silent
from kedge.cluster.job import NOW, StagedImage
from kedge.errors import AccessDenied, AuthenticationFailed, ImageNotFound, KedgeError, NoMatchingPlatform
from kedge.system.settings import Settings

if TYPE_CHECKING:
    from kedge.base.digest import Digest
    from kedge.base.reference import Reference

# Imports inside the functions below are late: images that are files, and jobs without one, need none of them.

_IN_VAIN = (AccessDenied, AuthenticationFailed, ImageNotFound, NoMatchingPlatform)  # the pull would fail, too


class _Listener(Silent):
    """Keeps warnings, to show them with those of the plan."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        """Keep the warning."""
        self.warnings.append(message)


@frozen
class _Pin:
    """The result of looking up a tag; empty if there was no tag."""

    reference: str = ""  # the image as the job names it, with the digest appended
    path: str = ""  # an image of that tag from an earlier pull, if the registry did not answer
    warnings: tuple[str, ...] = ()


def pin_image(word: str, image: StagedImage, settings: Settings, architecture: str) -> _Pin:
    """Look a tag up once, for nodes of `architecture` (empty: this host's); `word` is the image as the job names it."""
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
    from kedge.base.image_argument import is_reference
    from kedge.base.reference import Reference, Transport

    name = image.reference or (image.path if is_reference(image.path) else "")
    reference = Reference.parse(name) if name else None
    if reference is None or reference.digest or reference.transport not in (Transport.DOCKER, Transport.ORAS):
        return None
    return reference


def _ask(reference: Reference, settings: Settings, architecture: str) -> tuple[Digest, tuple[str, ...]]:
    """The digest of the manifest for these nodes; does not wait for a registry that does not answer."""
    from kedge.image.sources.resolve import resolve
    from kedge.image.workplace import LOOKUP_PATIENCE, Workplace

    listener = _Listener()
    asked = replace(settings, retries=0, architecture=architecture or settings.architecture)
    workplace = Workplace(asked, listener).hurry()
    with workplace.open_store() as store:
        image = resolve(reference, workplace, store, patience=LOOKUP_PATIENCE)
    return image.digest, tuple(listener.warnings)


def _add_digest(word: str, reference: Reference, digest: Digest) -> str:
    from kedge.base.image_argument import is_reference

    text = word if is_reference(word) else f"docker://{word}"
    return f"{text}{'' if reference.tag else ':latest'}@{digest}"


def _do_without(problem: KedgeError, word: str, image: StagedImage) -> _Pin:
    """Use the newest image of the tag from earlier pulls; else the tag itself."""
    pulled = _list_pulled(Path(image.path)) if image.reference else []
    if pulled:
        warning = f"{problem.message}; the job runs {pulled[-1]}, which may be older than {word}"
        return _Pin(path=str(pulled[-1]), warnings=(warning,))
    return _Pin(warnings=(f"{problem.message}; the tag is not pinned: the job runs {word} as it is when pulled",))


def _list_pulled(target: Path) -> list[Path]:
    """Images of the same tag, oldest first: named by digest, or from before jobs were pinned."""
    try:
        images = [path for path in target.parent.iterdir() if _is_of_tag(path.name, target.name)]
        return sorted(images, key=lambda path: path.stat().st_mtime)
    except OSError:
        return []


def _is_of_tag(name: str, wanted: str) -> bool:
    stem, _, digest = name.removesuffix(".sif").rpartition("@")
    return name == wanted or (stem == wanted.removesuffix(".sif") and digest != "")
