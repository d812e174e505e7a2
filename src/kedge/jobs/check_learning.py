# SPDX-License-Identifier: BSD-3-Clause
"""Checks before submission that the image has what the job starts or imports: PyTorch's launcher, Lightning, JAX.

Compute nodes find out as well, but after hours in the queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import frozen, replace
from kedge.base.image_argument import is_reference
from kedge.cluster.job import NOW, Job, StagedImage
from kedge.cluster.schedulers.container_words import runtime_of
from kedge.cluster.site import Site
from kedge.errors import KedgeError
from kedge.launch.learning_needs import (
    CONTRACTS,
    Surroundings,
    changes_search,
    check_needs,
    list_user_sites,
    read_surroundings,
)


@frozen
class LearningCheck:
    """What the script starts, and what to tell the user."""

    starter: tuple[str, ...] = ("torchrun",)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_learning(
    job: Job, site: Site, image: StagedImage, environ: Mapping[str, str], directory: str
) -> LearningCheck:
    """What the plan needs of the image; raises LaunchRefused if it does not have it, unless --force is given."""
    contract = job.contract or "torchrun"
    if not image.path or contract not in CONTRACTS:
        return LearningCheck()
    around = _read_surroundings(job, site, environ, directory)
    found = check_needs(job.image, _find_file(image), contract, job.command, around, force=job.force)
    warnings = (found.warning,) if found.warning else ()
    if found.launcher is None:
        return LearningCheck(warnings=warnings)
    note = found.launcher.reason
    if not found.launcher.is_known:
        note += f"; {_say_later(job, site, image)}"
    return LearningCheck(found.launcher.words, () if found.warning else (note,), warnings)


def _find_file(image: StagedImage) -> Path | None:
    """The image's file or directory, where it is the one that the job will start."""
    if image.reference or image.recipe or is_reference(image.path):
        return None
    path = Path(image.path)
    return path if path.exists() else None


def _say_later(job: Job, site: Site, image: StagedImage) -> str:
    if image.reference and image.when == NOW:
        return "kedge looks when it has pulled the image"
    return "the job looks when it starts" if runtime_of(job, site) == "kedge" else "the job starts torchrun"


def _read_surroundings(job: Job, site: Site, environ: Mapping[str, str], directory: str) -> Surroundings:
    """What the container will have beside the image."""
    binds = [word for bind in (*site.binds, *job.binds) for word in ("--bind", bind)]
    is_own = runtime_of(job, site) == "kedge"
    try:
        around = read_surroundings([*binds, *(job.container_options if is_own else ())], environ, directory)
    except KedgeError:  # binds with variables of the node, and options that the start itself refuses
        return Surroundings(is_changed=True, directory=directory)
    inside = [name for name, _ in (*site.environment, *job.environment)]
    is_set = changes_search(inside, {}) or any(re.search(r"ENV_\w*PATH", line) for line in (*site.setup, *job.setup))
    if is_own:
        return replace(around, is_changed=around.is_changed or is_set)
    # of their options little is known, and they show the packages of the user's home
    is_changed = around.is_changed or is_set or bool(job.container_options)
    return replace(around, is_changed=is_changed, modules=(*around.modules, *list_user_sites(environ)))
