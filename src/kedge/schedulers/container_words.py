# SPDX-License-Identifier: BSD-3-Clause
"""The words of a batch script that put a command into a container, for each runtime that a site may want."""

from __future__ import annotations

import shlex

from kedge.errors import RequestRefused
from kedge.model.job import Job
from kedge.model.site import Site
from kedge.schedulers.quoting import quote

RUNTIMES = ("kedge", "apptainer", "singularity", "pyxis")


def runtime_of(job: Job, site: Site) -> str:
    """What starts the container."""
    return job.runtime or site.runtime or "kedge"


def uses_pyxis(job: Job, site: Site) -> bool:
    """Whether srun itself starts the container."""
    return bool(job.image) and runtime_of(job, site) == "pyxis"


def container_words(job: Job, site: Site) -> list[str]:
    """Fragments of shell before the command; the variables `kedge` and `image` are set."""
    runtime = runtime_of(job, site)
    if runtime == "pyxis":
        return _pyxis_words(job, site)
    words = ['"$kedge"' if runtime == "kedge" else runtime, "exec" if job.command and not job.runscript else "run"]
    if job.uses_gpus:
        words.append("--nv")
    if job.force and runtime == "kedge":
        words.append("--force")
    words += [f"--bind {quote(bind)}" for bind in (*site.binds, *job.binds)]
    words += [quote(word) for word in job.container_options]
    return [*words, '"$image"']


def _pyxis_words(job: Job, site: Site) -> list[str]:
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
    words = [f"--container-image={quote(pyxis_name(job.image))}"]
    mounts = [_pyxis_mount(each) for bind in (*site.binds, *job.binds) for each in bind.split(",")]
    if mounts:
        words.append(f"--container-mounts={quote(','.join(mounts))}")
    if not job.command or job.runscript:
        words.append("--container-entrypoint")
    return words


def pyxis_name(image: str) -> str:
    """A reference as Pyxis writes it: REGISTRY#IMAGE:TAG, or a path that begins with / or ./"""
    if "://" not in image and (image.startswith(("/", "./")) or image.endswith((".sqsh", ".squashfs"))):
        return image if image.startswith(("/", "./")) else f"./{image}"
    name = image.removeprefix("docker://")
    registry, slash, rest = name.partition("/")
    if slash and ("." in registry or ":" in registry or registry == "localhost"):
        return f"{registry}#{rest}"
    return name


def _pyxis_mount(bind: str) -> str:
    source, colon, rest = bind.partition(":")
    target, second, options = rest.partition(":")
    text = f"{source}:{target if colon else source}"
    return f"{text}:{options.replace(',', '+')}" if second else text
