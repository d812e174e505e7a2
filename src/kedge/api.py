# SPDX-License-Identifier: BSD-3-Clause
"""The Python interface: the verbs as typed functions, for notebooks and programs.

Settings are merged as for the command line (files, environment); keyword arguments called like a setting of
`kedge config show` come on top. Every failure is a `kedge.errors.KedgeError` with message, context and hint.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kedge.answers import explain as explaining
from kedge.answers import search as searching
from kedge.answers.doctor import doctor as diagnosing
from kedge.answers.doctor.diagnosis import Diagnosis
from kedge.answers.explain import Explanation
from kedge.answers.recommend import Advice, recommend_tag
from kedge.answers.report import clean_diagnosis
from kedge.answers.search import SearchResult
from kedge.answers.tags import TagListing, TagQuery, list_image_tags
from kedge.answers.targets import find_target, keep_judged
from kedge.base.frozen import replace
from kedge.base.image_argument import is_reference
from kedge.base.image_format import ImageFormat
from kedge.base.progress import Progress, Silent
from kedge.base.reference import Reference
from kedge.base.setting_values import PULL_POLICIES
from kedge.builds import build as building
from kedge.builds.request import BuildDisplay, BuildOutput, BuildRequest, BuildResult, BuildSecret, SilentSteps
from kedge.compat.known_tables import find_repository, load_known_tables
from kedge.compat.tables.load import Tables
from kedge.container.start.step import name_step, run_step
from kedge.errors import ProgramFailed, UsageError
from kedge.image import convert as converting
from kedge.image import pull as pulling
from kedge.image import push as pushing
from kedge.image import unpack as unpacking
from kedge.image.convert import Converted
from kedge.image.inspect import Inspection
from kedge.image.inspect_remote import inspect_reference
from kedge.image.output_name import ImageOutput, read_output
from kedge.image.pull import Pulled
from kedge.image.push import Pushed
from kedge.image.unpack import Unpacked
from kedge.image.workplace import Workplace
from kedge.jobs import submit as submitting
from kedge.jobs.cluster import Cluster, open_cluster
from kedge.jobs.find_job import locate_job
from kedge.jobs.job_handle import JobHandle
from kedge.jobs.keywords import make_job
from kedge.system.lean_programs import Finished
from kedge.system.process import describe_status
from kedge.system.settings import Settings, check_key

__all__ = [
    "Advice",
    "BuildOptions",
    "BuildResult",
    "Converted",
    "Diagnosis",
    "Explanation",
    "Finished",
    "Inspection",
    "JobHandle",
    "Pulled",
    "Pushed",
    "SearchResult",
    "TagListing",
    "TagQuery",
    "Unpacked",
    "build",
    "convert",
    "diagnose",
    "explain",
    "inspect",
    "job",
    "pull",
    "push",
    "recommend",
    "run",
    "search",
    "submit",
    "tags",
    "unpack",
]

PathLike = str | os.PathLike[str]


def pull(
    reference: str,
    output: PathLike | None = None,
    *,
    format: str | None = None,
    force: bool = False,
    arch: str | None = None,
    progress: Progress | None = None,
    **settings: object,
) -> Pulled:
    """Get an image: `pull("docker://ubuntu:22.04", "ubuntu.sif")`; `format` is sif unless `output` says another."""
    form = _parse_format(format)
    target = read_output(os.fspath(output), form) if output is not None else ImageOutput(Path(), form)
    request = pulling.PullRequest(
        Reference.parse(reference),
        target.path if output is not None else None,
        target.form or ImageFormat.SIF,
        force,
        tag=target.tag,
    )
    return pulling.pull(request, _open_workplace(arch, progress, settings))


def push(
    source: PathLike, target: str, *, arch: str | None = None, progress: Progress | None = None, **settings: object
) -> Pushed:
    """Put an image of this host into a registry, as layers (`docker://`) or as a SIF file (`oras://`)."""
    return pushing.push(_parse_local(source), Reference.parse(target), _open_workplace(arch, progress, settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What few builds need: options of `kedge build` by their names."""

    format: str | None = None
    target: str = ""
    platform: str = ""
    no_cache: bool = False
    build_contexts: Mapping[str, str] = field(default_factory=dict)
    contexts: Sequence[PathLike] = ()  # what %files and %setup may take although it is private or outside
    contained: bool = False
    secrets: Mapping[str, PathLike] = field(default_factory=dict)  # files by their ids
    ssh: Sequence[str] = ()
    sections: Sequence[str] = ("all",)
    labels: Mapping[str, str] = field(default_factory=dict)
    pull: str = "auto"
    notest: bool = False
    nv: bool = False
    binds: Sequence[str] = ()
    protect: bool = False
    lock: PathLike | None = None  # the lock file
    log: PathLike | None = None
    epoch: int | None = None  # SOURCE_DATE_EPOCH


def build(
    spec: PathLike,
    output: PathLike | None = None,
    *,
    context: PathLike | None = None,
    tag: str = "",
    push: bool = False,
    force: bool = False,
    build_args: Mapping[str, str] | None = None,
    options: BuildOptions | None = None,
    progress: Progress | None = None,
    display: BuildDisplay | None = None,
    **settings: object,
) -> BuildResult:
    """Build an image: `build("tools.def", "tools.sif")`, or `build("Dockerfile", tag="team/tools:1", context=".")`.

    `spec` is a definition file, a Dockerfile or an image. `display` is told about the steps. A step that fails raises
    BuildFailed, with the end of its output in the context.
    """
    options = options or BuildOptions()
    form = _parse_format(options.format)
    written = read_output(os.fspath(output), form) if output is not None else ImageOutput(Path(), form)
    target = BuildOutput(
        written.path if output is not None else None,
        written.form or ImageFormat.SIF,
        tag or written.tag or "",
        push=push,
        force=force,
    )
    request = BuildRequest(os.fspath(spec), output=target, context=_make_path(context), arguments=build_args or {})
    workplace = _open_workplace(options.platform or None, progress, settings)
    return building.build(_add_options(request, options), workplace, display or SilentSteps())


def _add_options(request: BuildRequest, options: BuildOptions) -> BuildRequest:
    if options.pull not in PULL_POLICIES:
        raise UsageError(f"pull='{options.pull}' is not valid: use {', '.join(PULL_POLICIES)}")
    return replace(
        request,
        target=options.target,
        platform=options.platform,
        use_cache=not options.no_cache,
        contexts=options.build_contexts,
        allowed=tuple(Path(path) for path in options.contexts),
        is_contained=options.contained,
        secrets=tuple(BuildSecret(name, Path(path)) for name, path in options.secrets.items()),
        ssh=tuple(options.ssh),
        sections=tuple(options.sections),
        labels=options.labels,
        pull=options.pull,
        tests=not options.notest,
        binds=tuple(options.binds),
        options=("--nv",) if options.nv else (),
        protect=options.protect,
        lock=_make_path(options.lock),
        epoch=options.epoch,
        log=_make_path(options.log),
    )


def convert(
    source: PathLike,
    target: PathLike,
    *,
    format: str | None = None,
    force: bool = False,
    tag: str | None = None,
    progress: Progress | None = None,
    **settings: object,
) -> Converted:
    """Write an image in another format: that of `format`, of `FORMAT:PATH[:TAG]` or of the ending of `target`."""
    output = converting.read_target(os.fspath(target), _parse_format(format), tag)
    request = converting.ConvertRequest(_parse_local(source), output, force)
    return converting.convert(request, _open_workplace(None, progress, settings))


def inspect(
    reference: PathLike, *, arch: str | None = None, progress: Progress | None = None, **settings: object
) -> Inspection:
    """Read the labels, environment and scripts of an image; remote images are not pulled."""
    return inspect_reference(_parse_local(reference), _open_workplace(arch, progress, settings))


def run(
    image: PathLike,
    command: Sequence[str] | None = None,
    *,
    nv: bool = False,
    binds: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    pwd: PathLike | None = None,
    options: Sequence[str] = (),
    check: bool = True,
    capture: bool = True,
    timeout: float | None = None,
) -> Finished:
    """Run a command in a container, or the image's own script: `run("x.sif", ["python", "train.py"], nv=True)`.

    `binds` are as for `--bind`, `options` any options of `kedge exec`; `env` is passed unchanged. With `check`, a
    program that fails raises ProgramFailed. If kedge itself fails, it raises the class of that failure; without
    `capture` it prints the failure and returns status 255.
    """
    if isinstance(command, str):
        raise UsageError("the command is a list of words", hint='such as ["sh", "-c", "ls | wc -l"]')
    root = _name_image(image)
    done = run_step(
        root,
        command,
        binds=binds,
        environment=env,
        directory=os.fspath(pwd) if pwd is not None else "",
        options=[*(["--nv"] if nv else []), *options],
        capture=capture,
        timeout=timeout,
    )
    if check and done.status:
        said = done.errors[-2000:].decode(errors="replace").strip()
        context = {"status": str(done.status), **({"stderr": said} if said else {})}
        raise ProgramFailed(f"'{name_step(root, command)}' {describe_status(done.status)}", context=context)
    return done


def unpack(
    image: PathLike,
    *,
    pull: str = "auto",
    arch: str | None = None,
    progress: Progress | None = None,
    **settings: object,
) -> Unpacked:
    """Make an image ready on this node, so that the first `run` need not; `pull` says when a registry is asked."""
    if pull not in PULL_POLICIES:
        raise UsageError(f"pull='{pull}' is not valid: use {', '.join(PULL_POLICIES)}")
    return unpacking.unpack(_name_image(image), _open_workplace(arch, progress, settings), policy=pull)


def explain(
    reference: PathLike,
    *,
    gpu: str | None = None,
    driver: str | None = None,
    site: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
    **settings: object,
) -> Explanation:
    """Tell what is in an image and whether it runs, before it is pulled: `explain("nvcr.io/nvidia/pytorch:24.03-py3")`.

    It is judged for `gpu` and `driver`, for a queue (`site="zih-alpha:alpha"`), or for this host.
    """
    workplace, tables = _open_tables(progress, settings)
    target = find_target(
        gpu=gpu, driver=driver, site=site, environ=os.environ, settings=workplace.settings, tables=tables
    )
    return explaining.explain(_parse_local(reference), workplace, tables=tables, target=target, offline=offline)


def tags(
    repository: str,
    query: TagQuery | None = None,
    *,
    gpu: str | None = None,
    driver: str | None = None,
    site: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
    **settings: object,
) -> TagListing:
    """The tags of an image, newest first: `tags("pytorch", TagQuery(since="24.01", runs_here=True), gpu="H100")`.

    Each is judged for `gpu`, `driver` and `site`, or for this host if it has a GPU.
    """
    query = query or TagQuery()
    workplace, tables = _open_tables(progress, settings)
    found = find_repository(repository, tables)
    target = find_target(
        gpu=gpu,
        driver=driver,
        site=site,
        architecture=query.architecture,
        environ=os.environ,
        settings=workplace.settings,
        tables=tables,
    )
    judged = keep_judged(target, is_named=bool(gpu or driver or site), is_needed=query.runs_here)
    if found.tag and not query.match:
        query = replace(query, match=found.tag)
    return list_image_tags(found, workplace, tables, query=query, target=judged, offline=offline)


def search(
    words: str,
    *,
    catalogs: Sequence[str] = (searching.NGC, searching.HUB),
    limit: int = 15,
    offline: bool = False,
    progress: Progress | None = None,
    **settings: object,
) -> SearchResult:
    """Find images by words in NVIDIA's catalogue (`ngc`) and on Docker Hub (`hub`); `offline`: in kedge's tables."""
    workplace, tables = _open_tables(progress, settings)
    return searching.search(words.split(), workplace, tables, catalogs=() if offline else catalogs, limit=limit)


def recommend(
    image: str,
    *,
    gpu: str | None = None,
    driver: str | None = None,
    site: str | None = None,
    match: str = "",
    needs: Sequence[str] = (),
    variant: str = "",
    offline: bool = False,
    progress: Progress | None = None,
    **settings: object,
) -> Advice:
    """The newest tag that runs natively: `recommend("pytorch", gpu="A100", driver="535.104.05").name`.

    If the driver is unknown, `best` is None, and `recommendation.by_driver` has a tag for each driver branch.
    `needs` are conditions such as `python=3.10`, `variant` one of CUDA images' base, runtime, devel and cudnn.
    Raises NothingFits if no tag runs.
    """
    workplace, tables = _open_tables(progress, settings)
    found = find_repository(image, tables)
    target = find_target(
        gpu=gpu, driver=driver, site=site, environ=os.environ, settings=workplace.settings, tables=tables
    )
    return recommend_tag(
        found, workplace, tables, target=target, match=match, needs=needs, variant=variant, offline=offline
    )


def diagnose(
    image: str | None = None,
    *,
    checks: Sequence[str] | None = None,
    site: str | None = None,
    offline: bool = False,
    **settings: object,
) -> Diagnosis:
    """Find what keeps containers and jobs from working here; with an image also whether it runs. Contains no secrets.

    `checks` are names from `kedge doctor --list` (default: all).
    """
    flags = settings if site is None else {**settings, "site": site}
    merged = _open_workplace(None, None, flags).settings
    surroundings = diagnosing.describe_surroundings(merged, os.environ, is_offline=offline)
    diagnosis = diagnosing.diagnose(surroundings, checks, image=image)
    return clean_diagnosis(diagnosis, surroundings, lambda text: text, is_sent=False)


def _open_tables(progress: Progress | None, settings: dict[str, object]) -> tuple[Workplace, Tables]:
    workplace = _open_workplace(None, progress, settings)
    return workplace, load_known_tables(os.environ, workplace.progress)


def _parse_local(name: PathLike) -> Reference:
    """A reference; an object that is a path, such as a `pathlib.Path`, is never the name of something else."""
    return Reference.parse(name if isinstance(name, str) else f"file:{os.fspath(name)}")


def _name_image(name: PathLike) -> str:
    """Return a path or name as a word; a path that would be read as a reference gets `./`."""
    word = os.fspath(name)
    return f"./{word}" if not isinstance(name, str) and is_reference(word) else word


def _parse_format(text: str | None) -> ImageFormat | None:
    if text is not None and text not in set(ImageFormat):
        raise UsageError(f"'{text}' is not an image format; use one of: {', '.join(ImageFormat)}")
    return ImageFormat(text) if text is not None else None


def submit(
    image: PathLike = "", command: Sequence[str] | None = None, *, site: str | None = None, **description: object
) -> JobHandle:
    """Submit a job: `submit("x.sif", ["python", "train.py"], gpus=1, time="2h")`.

    The keywords are the keys of kedge.toml. Without an image the command runs on the node itself.
    """
    described = make_job({**description, "image": _name_image(image) or None, "command": command})
    cluster, settings = open_jobs(site)
    plan = submitting.plan_submit(described, cluster, settings, os.environ, str(Path.cwd()))
    return JobHandle(cluster, submitting.submit(plan).record)


def job(word: str, *, site: str | None = None) -> JobHandle:
    """Find a job that was submitted with kedge, by its id, its name, or `last`."""
    cluster, settings = open_jobs(site)
    if site:
        return JobHandle(cluster, cluster.records.find(word, cluster.site.name))
    cluster, found = locate_job(settings, os.environ, word)
    return JobHandle(cluster, found.record or cluster.records.find(word, cluster.site.name))


def open_jobs(site: str | None) -> tuple[Cluster, Settings]:
    """The cluster that jobs go to, and the settings."""
    settings = Settings.load({"site": site} if site else {})
    return open_cluster(settings, os.environ), settings


def _make_path(path: PathLike | None) -> Path | None:
    return Path(path) if path is not None else None


def _open_workplace(arch: str | None, progress: Progress | None, settings: dict[str, object]) -> Workplace:
    for name in settings:
        check_key(name, where="keyword argument")
    flags = settings if arch is None else {**settings, "architecture": arch}
    return Workplace(Settings.load(flags), progress or Silent())
