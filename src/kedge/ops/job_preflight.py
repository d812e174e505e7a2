# SPDX-License-Identifier: BSD-3-Clause
"""Before a job queues: whether its image runs on the GPUs of its queue, by what is known without asking anybody.

The image file itself, the tables, and what an earlier pull or `explain` left in the store; nothing is fetched, and
where nothing is known nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.errors import KedgeError, WillNotRun
from kedge.model.job import Job
from kedge.model.site import Queue, Site
from kedge.ops.job_image import StagedImage
from kedge.settings import Settings

if TYPE_CHECKING:
    from kedge.compat.image.traits import ImageTraits
    from kedge.compat.tables.load import Tables
    from kedge.compat.verdict import Verdict

# Imports inside the functions below are late: jobs without GPUs, and sites that do not say which they have, pay none.


def check_image(
    job: Job, site: Site, image: StagedImage, settings: Settings, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Warnings about the image in the job's queue; raises WillNotRun where it cannot work, unless the job is forced."""
    queue = site.find_queue(job.queue)
    if queue is None or not image.path or not job.uses_gpus or not (queue.gpu or queue.gpu_type):
        return ()
    verdict = _judge(image, site, queue, settings, environ)
    if verdict is None or verdict.runs is not False:
        return ()
    failure = verdict.failures[0]
    problem = f"{job.image} {verdict.headline}"
    if job.force:
        return (f"{problem}. {failure.remedy}".strip(),)
    raise WillNotRun(
        problem,
        context={"site": site.name, "queue": queue.name, "why": failure.sentence},
        hint=f"{failure.remedy} 'kedge recommend IMAGE --on {site.name}:{queue.name}' names images that fit; "
        "--force submits it all the same".lstrip(),
    )


def _judge(
    image: StagedImage, site: Site, queue: Queue, settings: Settings, environ: Mapping[str, str]
) -> Verdict | None:
    from kedge.compat.judge import judge
    from kedge.compat.tables.load import load_tables
    from kedge.ops.data import learned_path
    from kedge.ops.queue_target import describe_queues

    try:
        tables = load_tables(learned_path(environ))
        traits = _read_traits(image, queue, settings, tables)
        if traits is None:
            return None
        return judge(traits, describe_queues(site, [queue], environ, settings, tables), tables)
    except (KedgeError, OSError):
        return None  # a check that cannot be made keeps no job out of the queue


def _read_traits(image: StagedImage, queue: Queue, settings: Settings, tables: Tables) -> ImageTraits | None:
    """What is known of the image here and now."""
    if not image.reference and Path(image.path).exists():
        return _read_file(image.path, tables)
    name = image.reference or image.path
    stored = _read_stored(name, queue, settings, tables)  # the image's own config knows more than the tables
    if stored is not None:
        return stored
    from kedge.compat.image.read_traits import read_traits, split_name

    repository, tag = split_name(name)
    if tag and tables.find_release(repository, tag) is not None:
        return read_traits(name, environment={}, labels={}, history=(), tables=tables)
    return None


def _read_file(path: str, tables: Tables) -> ImageTraits | None:
    """By the config that a SIF carries; to look at the files inside would take longer than the submission."""
    from kedge.compat.image.read_traits import read_config_traits
    from kedge.model.manifest import parse_config
    from kedge.runtime.images.image_file import identify

    raw = identify(path).read_config()
    return read_config_traits(path, parse_config(_wrap(raw), where=path), tables) if raw else None


def _wrap(raw: bytes) -> bytes:
    """A SIF has the inner part of an image's config alone."""
    return b'{"config": ' + raw + b"}"


def _read_stored(name: str, queue: Queue, settings: Settings, tables: Tables) -> ImageTraits | None:
    """By the manifest and the config that the store has, if this name was ever asked for."""
    from kedge.model.platform import Platform
    from kedge.model.reference import Reference
    from kedge.store.layout import Layout
    from kedge.store.names import Names

    platform = Platform.parse(queue.arch) if queue.arch else Platform.host()
    if Names(Layout(settings.cache_directory)).recall(name, platform) is None:
        return None
    from kedge.frozen import replace
    from kedge.ops.image_traits import read_image_traits
    from kedge.ops.workplace import Workplace

    place = Workplace(replace(settings, architecture=platform.architecture))
    return read_image_traits(Reference.parse(name), place, tables, offline=True)
