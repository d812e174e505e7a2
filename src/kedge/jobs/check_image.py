# SPDX-License-Identifier: BSD-3-Clause
"""Checks before submission whether the image runs on the GPUs of the queue, without pulling it.

Sources: the image file, the tables, and the cache of an earlier pull, `explain` or look-up of the tag. At most the
config of the image is fetched. What they do not say is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kedge.cluster.job import Job, StagedImage
from kedge.cluster.site import Queue, Site
from kedge.errors import KedgeError, WillNotRun
from kedge.jobs.stage_image import ImageWords
from kedge.system.settings import Settings

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits
    from kedge.compat.verdict import Verdict

# Imports inside the functions below are late: most jobs and sites need none of them.


def check_image(job: Job, site: Site, image: StagedImage, settings: Settings, environ: Mapping[str, str]) -> ImageWords:
    """Return what is known of the image in the job's queue; raises WillNotRun if it cannot work, without --force."""
    queue = site.find_queue(job.queue)
    if queue is None or not image.path or not job.uses_gpus or not (queue.gpu or queue.gpu_type):
        return ImageWords()
    judged = _judge(image, site, queue, settings, environ)
    if judged is None:
        unknown = (
            f"unknown whether it runs on {queue.gpu or queue.gpu_type}: no table has it, and it was not pulled yet"
        )
        return ImageWords(notes=(f"{job.image}: {unknown}",))
    if judged.verdict.runs is not False:
        return _tell(job.image, judged.verdict)
    problem = f"{job.image} {judged.verdict.headline}"
    if job.force:
        return ImageWords((f"{problem}. {judged.remedy}".strip(),))
    raise WillNotRun(
        problem,
        context={"site": site.name, "queue": queue.name, "why": judged.verdict.failures[0].sentence},
        hint=f"{judged.remedy} List images that fit: kedge recommend {judged.instead} --on {site.name}:{queue.name}. "
        "To submit it anyway add --force".lstrip(),
    )


def _tell(name: str, verdict: Verdict) -> ImageWords:
    """The headline of `explain`; where it is unknown, also what speaks against it."""
    from kedge.compat.verdict import WARNING

    line = f"{name}: {verdict.headline}"
    doubts = [judgement.sentence for judgement in verdict.judgements if judgement.level == WARNING]
    if verdict.runs is None and doubts:
        return ImageWords(warnings=(f"{line}. {' '.join(doubts)}",))
    return ImageWords(notes=(line,))


def warn_unseen_gpus(
    job: Job, site: Site, image: StagedImage, settings: Settings, environ: Mapping[str, str]
) -> ImageWords:
    """A warning if nodes have GPUs that the job did not request, so that a CUDA image would not see them."""
    from kedge.cluster.schedulers.container_words import uses_pyxis
    from kedge.compat.data import learned_path

    queue = site.find_queue(job.queue)
    if queue is None or not image.path or uses_pyxis(job, site):  # Pyxis adds them itself
        return ImageWords()
    from kedge.compat.tables.load import load_tables

    try:
        traits = read_staged_traits(image, queue.arch, settings, load_tables(learned_path(environ)))
    except (KedgeError, OSError):
        return ImageWords()
    if traits is None or not (traits.cuda or traits.driver):
        return ImageWords()
    cuda = f"CUDA {'.'.join(traits.cuda.value.split('.')[:2])}" if traits.cuda else "CUDA"
    unseen = f"the container will see no GPU: {job.image} is for {cuda} and the nodes of {queue.name} have GPUs"
    return ImageWords((f"{unseen}, but neither --gpus nor --nv was given; add --nv",))


class _Judged:
    """The verdict, and the remedy if the image does not run."""

    __slots__ = ("instead", "remedy", "verdict")

    def __init__(self, verdict: Verdict, remedy: str = "", instead: str = "") -> None:
        self.verdict = verdict
        self.remedy = remedy
        self.instead = instead  # the image to search for tags that fit


def _judge(
    image: StagedImage, site: Site, queue: Queue, settings: Settings, environ: Mapping[str, str]
) -> _Judged | None:
    """The verdict; None if nothing is known of the image."""
    from kedge.compat.data import learned_path
    from kedge.compat.judge import judge
    from kedge.compat.tables.load import load_tables
    from kedge.jobs.queue_target import describe_queues

    try:
        tables = load_tables(learned_path(environ))
        traits = read_staged_traits(image, queue.arch, settings, tables)
        if traits is None:
            return None
        target = describe_queues(site, [queue], environ, settings, tables)
        verdict = judge(traits, target, tables)
        return _Judged(verdict) if verdict.runs is not False else _find_remedy(verdict, traits, target, tables)
    except (KedgeError, OSError):
        return None  # a failed check must not stop the job


def _find_remedy(verdict: Verdict, traits: ImageTraits, target: Target, tables: Tables) -> _Judged:
    """The remedy of the failed rule, unless no tag of the image supports the GPU: then that would be wrong."""
    from kedge.compat.contents.read_traits import split_name
    from kedge.compat.recommend import NO_KERNELS, recommend

    name = split_name(traits.name)[0]
    if name not in tables.images:
        return _Judged(verdict, verdict.failures[0].remedy, "IMAGE")
    if recommend(name, target, tables, is_brief=True).reason == NO_KERNELS:
        return _Judged(
            verdict, f"No tag of {name} is known to support that GPU: use another queue, or plain CUDA.", "cuda"
        )
    return _Judged(verdict, verdict.failures[0].remedy, name.rpartition("/")[2])


def read_staged_traits(image: StagedImage, architecture: str, settings: Settings, tables: Tables) -> ImageTraits | None:
    """Return what is known of the image without pulling it."""
    from kedge.base.image_argument import is_reference  # late: not every job has an image

    if not image.reference and not is_reference(image.path) and Path(image.path).exists():
        return _read_file(image.path, tables)
    name = image.reference or image.path
    stored = _read_stored(name, architecture, settings, tables)  # the image's own config knows more than the tables
    if stored is not None:
        return stored
    from kedge.compat.contents.read_traits import read_traits, split_name

    repository, tag = split_name(name)
    if tag and tables.find_release(repository, tag) is not None:
        return read_traits(name, environment={}, labels={}, history=(), tables=tables, architecture=architecture)
    from kedge.compat.contents.known_traits import read_known_traits

    return read_known_traits(name, tables, architecture)


def _read_file(path: str, tables: Tables) -> ImageTraits | None:
    """Traits from the config in a SIF; reading the files inside would take longer than the submission."""
    from kedge.base.manifest import parse_config
    from kedge.compat.contents.read_traits import read_config_traits
    from kedge.image.image_file import identify

    raw = identify(path).read_config()
    return read_config_traits(path, parse_config(_wrap(raw), where=path), tables) if raw else None


def _wrap(raw: bytes) -> bytes:
    """A whole config: a SIF has only the inner part."""
    return b'{"config": ' + raw + b"}"


def _read_stored(name: str, architecture: str, settings: Settings, tables: Tables) -> ImageTraits | None:
    """Traits from the manifest and the config in the cache, if this name was looked up before."""
    from kedge.base.platform import Platform
    from kedge.base.reference import Reference
    from kedge.image.store.layout import Layout
    from kedge.image.store.resolved_names import Names

    platform = Platform.parse(architecture) if architecture else Platform.host()
    if Names(Layout(settings.cache_directory)).recall(name, platform) is None:
        return None
    from kedge.base.frozen import replace
    from kedge.compat.image_traits import read_image_traits
    from kedge.image.workplace import Workplace

    place = Workplace(replace(settings, architecture=platform.architecture, retries=0))
    try:
        return read_image_traits(Reference.parse(name), place, tables, offline=True)
    except KedgeError:  # the config is not cached, and the registry does not answer
        return None
