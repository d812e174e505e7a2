# SPDX-License-Identifier: BSD-3-Clause
"""The words of a batch script that put a command into a container, for each runtime that a site may want."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from kedge.cluster.job import Job
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.shell_words import quote
from kedge.cluster.site import Site
from kedge.errors import RequestRefused

_REQUESTS = {"kedge": "KEDGEENV_", "apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}
_ROOT = "/"  # nobody wants the node's root over that of the image


def runtime_of(job: Job, site: Site) -> str:
    """What starts the container."""
    return job.runtime or site.runtime or "kedge"


def uses_pyxis(job: Job, site: Site) -> bool:
    """Whether srun itself starts the container."""
    return bool(job.image) and runtime_of(job, site) == "pyxis"


def request_names(name: str, job: Job, site: Site) -> list[str]:
    """The variables with which the runtime is asked to set `name` in the container, before all that it may be now."""
    runtime = runtime_of(job, site)
    if runtime == "pyxis":
        return []  # srun is told on its command line
    if name == "HOME" and runtime != "kedge":
        raise RequestRefused(
            f"{runtime} does not let --env set HOME",
            hint="give its own option: --option=--home --option=DIR, or --runtime kedge",
        )
    return [_REQUESTS[runtime] + name]


def escape_value(value: str) -> str:
    """A value that is still itself after the container's shell has read it, which runtimes let it do."""
    return re.sub(r"([\\$`])", r"\\\1", value)


def has_run_record(job: Job, site: Site, place: ScriptContext) -> bool:
    """Whether the container's run leaves a record: kedge starts it, and knows where the job's own record is."""
    return bool(place.record and job.image) and runtime_of(job, site) == "kedge"


def container_words(job: Job, site: Site, place: ScriptContext, verb: Sequence[str] = ()) -> list[str]:
    """Fragments of shell before the command; the variables `kedge` and `image` are set, the directory is the job's.

    `verb` stands for `exec` or `run`.
    """
    runtime = runtime_of(job, site)
    if runtime == "pyxis":
        return [*_pyxis_variables(job, place.inside_only), *_pyxis_words(job, site, place.directory)]
    words = ['"$kedge"' if runtime == "kedge" else runtime]
    words += verb or ["exec" if job.command and not job.runscript else "run"]
    words += ["--runscript"] if verb and job.runscript else []
    if job.uses_gpus:
        words.append("--nv")
    if job.force and runtime == "kedge":
        words.append("--force")
    if has_run_record(job, site, place):
        words.append('--record-to "$run_record"')
    words += [f"--bind {quote(bind)}" for bind in (*site.binds, *job.binds)]
    words += [quote(word) for word in job.container_options]
    return [*words, '"$image"']


def _pyxis_variables(job: Job, inside_only: Sequence[str]) -> list[str]:
    """Options of srun for the variables of the job: the image's own would win, and srun itself must not get all."""
    told = {name: value for name, value in job.environment if name in inside_only}
    broken = next((name for name, value in told.items() if "," in value), "")
    if broken:
        raise RequestRefused(
            f"srun takes no comma in the value of {broken}",
            hint="set it in the command itself: sh -c 'export NAME=VALUE; …', or give --runtime kedge",
        )
    listed = ",".join(name for name, _ in job.environment)
    given = "".join(f",{name}={value}" for name, value in told.items())
    words = [f"--export={quote('ALL' + given)}"] if told else []
    return [*words, f"--container-env={quote(listed)}"] if listed else []


def pyxis_options(job: Job, site: Site, directory: str) -> list[str]:
    """Options of srun for a container that begins in `directory`, as words."""
    _check_pyxis(job, site, directory)
    mounts = _list_pyxis_mounts(job, site)
    words = [f"--container-image={_pyxis_name(job.image)}"]
    if directory != _ROOT:
        mounts.insert(0, f"{directory}:{directory}")
        words.append(f"--container-workdir={directory}")
    return [*words, f"--container-mounts={','.join(mounts)}"] if mounts else words


def _pyxis_words(job: Job, site: Site, directory: str) -> list[str]:
    """Return Pyxis' words as fragments of shell; a directory to which the script's own lines changed counts."""
    _check_pyxis(job, site, directory)
    mounts = [quote(",".join(_list_pyxis_mounts(job, site)))] if (*site.binds, *job.binds) else []
    words = [f"--container-image={quote(_pyxis_name(job.image))}"]
    if directory != _ROOT:
        mounts.insert(0, '"$PWD:$PWD"')
        words.append('--container-workdir="$PWD"')
    words += [f"--container-mounts={','.join(mounts)}"] if mounts else []
    return [*words, "--container-entrypoint"] if not job.command or job.runscript else words


def _list_pyxis_mounts(job: Job, site: Site) -> list[str]:
    return [_pyxis_mount(each) for bind in (*site.binds, *job.binds) for each in bind.split(",")]


def _check_pyxis(job: Job, site: Site, directory: str) -> None:
    if site.scheduler != "slurm":
        raise RequestRefused(
            f"Pyxis is a part of Slurm, and the site {site.name} has {site.scheduler}",
            hint="choose another runtime, as with --runtime kedge",
        )
    if re.search("[,:]", directory):
        raise RequestRefused(
            f"Pyxis cannot mount a directory with a comma or a colon in its name: {directory}",
            hint="work in another directory, or give --runtime kedge",
        )
    if job.container_options:
        raise RequestRefused(
            f"Pyxis does not know these options of containers: {shlex.join(job.container_options)}",
            hint="choose another runtime, as with --runtime kedge",
        )
    if job.image.endswith((".sif", ".simg")):
        raise RequestRefused(
            f"Pyxis takes no SIF file, and the image is {job.image}",
            hint="name the image on its registry, make a SquashFS with 'kedge convert', or give --runtime kedge",
        )


def _pyxis_name(image: str) -> str:
    """A reference as Pyxis writes it: REGISTRY#IMAGE:TAG, or a path that begins with / or ./"""
    if "://" not in image and (image.startswith(("/", "./")) or image.endswith((".sqsh", ".squashfs"))):
        return image if image.startswith(("/", "./")) else f"./{image}"
    name, at_sign, digest = image.removeprefix("docker://").partition("@sha256:")
    if at_sign:  # Enroot takes a digest in the place of the tag, and not behind it
        folder, slash, last = name.rpartition("/")
        name = f"{folder}{slash}{last.partition(':')[0]}:sha256:{digest}"
    registry, slash, rest = name.partition("/")
    if slash and ("." in registry or ":" in registry or registry == "localhost"):
        return f"{registry}#{rest}"
    return name


def _pyxis_mount(bind: str) -> str:
    source, colon, rest = bind.partition(":")
    target, second, options = rest.partition(":")
    text = f"{source}:{target if colon else source}"
    return f"{text}:{options.replace(',', '+')}" if second else text
