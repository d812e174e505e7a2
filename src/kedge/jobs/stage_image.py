# SPDX-License-Identifier: BSD-3-Clause
"""Decides where the image of a job is kept for the compute nodes, and whether it is pulled now or in the job."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.cluster.job import NOW, Job, StagedImage
from kedge.cluster.schedulers.choose import list_facts
from kedge.cluster.site import Site, expand_path
from kedge.errors import FileProblem, InvalidJob, KedgeError, ProgramFailed
from kedge.system.settings import Settings, xdg_directory

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.base.reference import Reference

_INTERPRETERS = {".sh": ("bash",), ".py": ("python",)}


@frozen
class ImageWords:
    """What a submission says of its image."""

    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@frozen
class FileStaging:
    """Whether the job copies kedge and the image to every node first, and what to tell its user."""

    kedge: bool = False
    image: bool = False
    notes: tuple[str, ...] = ()


def place_image(job: Job, site: Site, settings: Settings, environ: Mapping[str, str], directory: str) -> StagedImage:
    """Decide where the image comes from; nothing is pulled yet."""
    if job.build:
        return _place_built(job, settings, directory)
    if not job.image:
        return StagedImage("")
    from kedge.base.image_argument import is_reference  # late: not every job has an image

    if not is_reference(job.image) and Path(directory, job.image).exists():
        return _take_file(job, Path(directory, job.image), settings)
    from kedge.base.reference import Reference, Transport  # late: a file is named by its path

    reference = Reference.parse(job.image, exists=lambda path: os.path.lexists(Path(directory, path)))
    if reference.transport is Transport.INSTANCE:
        raise InvalidJob(
            f"'{job.image}' is an instance on this node, and jobs run on other nodes",
            hint="name the image that it was started from",
        )
    if reference.transport is Transport.FILE:
        path = Path(directory, reference.path)
        if path.exists():
            return _take_file(job, path, settings)
        raise FileProblem(
            f"the image {path} does not exist",
            context={"path": str(path)},
            hint="pull one with kedge pull; references to registries begin with docker://",
        )
    _require_meant(job, reference, settings)
    if (job.runtime or site.runtime) == "pyxis" and reference.transport is Transport.DOCKER:
        return StagedImage(job.image)
    target = _find_image_directory(site, settings, environ).joinpath(*_name_parts(reference))
    is_certain = reference.digest is not None or reference.transport not in (Transport.DOCKER, Transport.ORAS)
    if is_certain and target.exists():  # a tag may have moved
        return StagedImage(str(target))
    is_here = reference.is_local  # compute nodes cannot pull what is on this node only
    when = NOW if is_here else job.pull or site.pull or NOW
    return StagedImage(str(target), str(reference), when, "" if job.pull else site.pull_reason)


def _place_built(job: Job, settings: Settings, directory: str) -> StagedImage:
    """The file that the job builds; where it is there already, the job takes it as it is."""
    from kedge.base.image_argument import is_reference  # late: not every job has an image

    recipe, path = Path(directory, job.build), Path(directory, job.image)
    if not job.image or is_reference(job.image):
        raise InvalidJob(
            f"--build {job.build} needs a file to write, not '{job.image}'",
            hint=f"name the image file: kedge submit --build {shlex.quote(job.build)} image.sif COMMAND",
        )
    if not recipe.exists():
        raise FileProblem(
            f"the recipe {recipe} does not exist",
            context={"path": str(recipe)},
            hint="name a definition file, a Dockerfile, or a directory with a Dockerfile",
        )
    if path.exists():
        return _take_file(job, path, settings)
    return StagedImage(str(path), when="in-job", recipe=str(recipe))


def _take_file(job: Job, path: Path, settings: Settings) -> StagedImage:
    """The file or directory itself; refuses what `kedge exec` would refuse, before the job is pending."""
    from kedge.image.image_file import identify  # late: not every job has an image here

    try:
        identify(str(path))
    except KedgeError as problem:
        raise _refuse_program(job, path, settings) or problem from None
    return StagedImage(str(path))


def _refuse_program(job: Job, path: Path, settings: Settings) -> KedgeError | None:
    """The error for a program in the place of the image, with the commands to type; None for a broken image."""
    from kedge.errors import UnsupportedFormat  # late: only for an error
    from kedge.image.formats.identify import FileKind, identify_bytes

    start = b""
    if path.is_file():
        with contextlib.suppress(OSError), path.open("rb") as file:
            start = file.read(1 << 16)
    kind = identify_bytes(start)
    if kind not in (FileKind.SCRIPT, FileKind.TEXT, FileKind.ELF):
        return None
    program = _find_submitter(start.decode(errors="replace"))
    hint = _propose_batch(job, program) if program else _propose_command(job, path, settings)
    shown = "a batch script" if program else kind.value
    return UnsupportedFormat(f"{path} is {shown}, not an image", context={"file": str(path)}, hint=hint)


def _find_submitter(text: str) -> str:
    """The program that submits such a script; empty where it is no batch script."""
    known = [facts for facts in list_facts() if facts.prefix]
    found = (facts.submit for facts in known if re.search(rf"^{re.escape(facts.prefix)}[ \t]+-", text, re.MULTILINE))
    return next(found, "")


def _propose_batch(job: Job, program: str) -> str:
    name = shlex.quote(job.image)
    return f"submit a batch script with '{program} {name}', or convert it: 'kedge script convert {name}'"


def _propose_command(job: Job, path: Path, settings: Settings) -> str:
    name = job.image if "/" in job.image else f"./{job.image}"
    words = shlex.join([*_INTERPRETERS.get(path.suffix, ()), name, *job.command])
    submit = _show_submit(settings)
    return f"run it in an image: '{submit} IMAGE {words}', or without a container: '{submit} - {words}'"


def _show_submit(settings: Settings) -> str:
    """The command, for the same site."""
    is_named = settings.sources["site"].kind == "flag"
    return f"kedge submit --site {shlex.quote(settings.site or '')}" if is_named else "kedge submit"


def _require_meant(job: Job, reference: Reference, settings: Settings) -> None:
    """Refuse a bare word, which users rarely mean as an image of Docker Hub: `kedge submit python train.py`."""
    from kedge.base.image_argument import is_reference  # late: not every job has an image
    from kedge.base.reference import Transport

    is_whole = is_reference(job.image) or job.image.startswith(f"{reference.registry}/")
    if is_whole or reference.transport is not Transport.DOCKER or reference.tag or reference.digest:
        return
    words = shlex.join([job.image, *job.command])
    raise FileProblem(
        f"image file '{job.image}' not found",
        context={"image": job.image},
        hint=f"for the image on Docker Hub write docker://{job.image}; "
        f"to run it without a container: {_show_submit(settings)} - {words}",
    )


def _find_image_directory(site: Site, settings: Settings, environ: Mapping[str, str]) -> Path:
    """The directory for images of jobs: as the site says, else on its scratch, else in the user's data directory."""
    if settings.pull_directory is not None:
        return settings.pull_directory
    for place in (site.image_directory, f"{site.scratch}/kedge/images" if site.scratch else ""):
        path = expand_path(place, environ)
        if path:
            return Path(path)
    if settings.scratch_directory is not None:
        return settings.scratch_directory / "kedge" / "images"
    return xdg_directory(environ, "XDG_DATA_HOME", ".local/share") / "images"


def read_architecture(staged: StagedImage, site: Site) -> str:
    """The architecture of an existing image, if the site states those of its nodes; empty: unknown."""
    if staged.reference or not staged.path.endswith(".sif") or not any(queue.arch for queue in site.queues):
        return ""
    from kedge.image.formats.sif.reader import SifReader  # late: most sites have one architecture

    try:
        with Path(staged.path).open("rb") as file:
            return SifReader(file, staged.path).header.architecture
    except (OSError, KedgeError):
        return ""  # a damaged file is reported when the container starts


def pull_image(staged: StagedImage, architecture: str = "") -> None:
    """Pull the image now, as `kedge pull` does: in a child, so that a kill by a memory limit is explained.

    `architecture` is that of the compute nodes, if known: the login node may have another.
    """
    from kedge.system.kedge_child import run_kedge  # late: an image that is there needs no pull

    chosen = ["--arch", architecture] if architecture else []
    done = run_kedge(["pull", "--if-missing", *chosen, staged.path, staged.reference], capture=False)
    if done.status:
        raise ProgramFailed(
            f"cannot pull {staged.reference}; nothing was submitted",
            hint="see the reason above; with --pull in-job the job pulls the image itself",
        )


def _name_parts(reference: Reference) -> list[str]:
    """The path below the image directory: by registry, because `pytorch:24.03` may be on several."""
    name = reference.default_name() or "image.sif"
    if reference.digest and reference.tag:  # one file for each digest that the tag had
        name = f"{name.removesuffix('.sif')}@{reference.digest.hex[:12]}.sif"
    directories = [reference.registry.replace(":", "_")] if reference.registry else [str(reference.transport)]
    directories += reference.repository.split("/")[:-1]
    return [part for part in directories if part not in ("", ".", "..")] + [name]
