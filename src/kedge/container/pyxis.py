# SPDX-License-Identifier: BSD-3-Clause
"""The importer of Pyxis, which brings containers to `srun`: a SquashFS file that Enroot starts, from the store.

https://github.com/NVIDIA/pyxis/tree/master/importers
Pyxis asks once per node and job step, as the user, and says when the file is not needed any more; that it may say
twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kedge.base.frozen import JsonValue, replace
from kedge.base.reference import Reference
from kedge.cluster.schedulers.slurm import FACTS
from kedge.image.cached_image import CachedFile, CachedFormat, find_cached_file
from kedge.image.formats.enroot import add_enroot_files, has_enroot_files
from kedge.image.make_layers import make_section
from kedge.image.registry.access_options import AccessOptions
from kedge.image.sources.image_source import ImageSource, LayeredImage
from kedge.image.store.held_images import Holds
from kedge.image.store.images import Handing
from kedge.image.store.layout import Layout
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.image.write_image import WriteOptions, open_writer


@dataclass(frozen=True, slots=True)
class _Got(JsonValue):
    """A file for Enroot."""

    json_names = (("owner", "held_for"),)

    reference: str
    path: Path
    was_stored: bool
    owner: str


def get_image(uri: str, workplace: Workplace, environ: Mapping[str, str]) -> _Got:
    """Have the image as a file that stays until `release_images`; made by one node for all, and kept for the next job.

    Where the registry cannot be reached, what its answer was last time counts.
    """
    reference = Reference.parse(uri)
    workplace = replace(workplace, access=AccessOptions(username=reference.user))
    owner = _name_owner(environ)
    holds = _open_holds(workplace)
    name = reference.default_name(".sqsh")
    with workplace.open_store() as store:
        source = find_cached_file(reference, workplace, store, ENROOT, policy="newer")
        with store.use_image(source.key):
            was_stored = store.find_image(source.key) is not None
            if workplace.settings.disable_cache:
                path = _build_alone(source, store, workplace, holds.place(owner, name))
            else:
                path = holds.hold(_build(source, store, workplace, was_stored), owner, name)
    return _Got(reference.redacted, path, was_stored, owner)


def release_images(workplace: Workplace, environ: Mapping[str, str]) -> bool:
    """Let go of what this job step holds on this node; whether it held anything."""
    return _open_holds(workplace).release(_name_owner(environ))


def _name_owner(environ: Mapping[str, str]) -> str:
    """Return who holds an image: a step of a job on one node."""
    job, step = environ.get(FACTS.job_id, ""), environ.get(FACTS.step_id, "")
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    return f"job-{job}.{step or 'batch'}.{node}" if job else f"no-job.{os.getuid()}.{node}"


def write_enroot(file: BinaryIO, image: ImageSource, options: WriteOptions) -> int:
    """A SquashFS file with what Enroot wants to find in it; nothing in it depends on the image's name."""
    record = image.record
    with open_writer(file, image, options) as writer:
        root = image.fill(writer)
        if isinstance(image, LayeredImage) or not has_enroot_files(root):
            section = make_section(image, options.progress)
            source = str(record.digest or "")
            for warning in add_enroot_files(root, writer, section, mtime=record.created, source=source):
                options.progress.warn(warning)
        return writer.finish(root)


ENROOT = CachedFormat("enroot", write_enroot, names_source=False)


def _open_holds(workplace: Workplace) -> Holds:
    settings = workplace.settings
    return Holds(Layout(settings.cache_directory, settings.shared_cache))


def _build(source: CachedFile, store: Store, workplace: Workplace, was_stored: bool) -> Path:
    if was_stored:
        return store.build_image(source.key, source.build)
    with workplace.attempt(store, "the import of an image for Pyxis"):
        return store.build_image(source.key, source.build, notify=workplace.progress.note)


def _build_alone(source: CachedFile, store: Store, workplace: Workplace, target: Path) -> Path:
    """Build a file of the job's own, which goes with it: there is no cache."""
    with workplace.attempt(store, "the import of an image for Pyxis"):
        store.build_into(source.key, source.build, Handing(target, force=True), keep=False)
    return target
