# SPDX-License-Identifier: BSD-3-Clause
"""Interactive jobs: an allocation with the user's terminal, in the container."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from kedge.base.frozen import frozen
from kedge.cluster.job import NOW, Job, Parallel, StagedImage
from kedge.cluster.schedulers.container_words import pyxis_options, uses_pyxis
from kedge.cluster.sites.check_request import check_request
from kedge.errors import InvalidJob, ProgramMissing, SchedulerFailed, UsageError
from kedge.jobs.cluster import Cluster
from kedge.jobs.stage_image import place_image, pull_image, read_architecture
from kedge.jobs.submit import find_kedge, judge_image
from kedge.system.programs import find_program
from kedge.system.settings import Settings
from kedge.system.spawn import replace_process

_ANY_SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")


@frozen
class Allocation:
    """The command to run on the login node, and what the user types on the compute node if it takes no command."""

    argv: tuple[str, ...]
    typed: tuple[str, ...]
    image: StagedImage
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def plan_allocation(
    job: Job,
    cluster: Cluster,
    settings: Settings,
    environ: Mapping[str, str],
    folder: str,
    *,
    has_terminal: bool = True,
) -> Allocation:
    """Plan the allocation; nothing is pulled or requested yet."""
    if job.array or job.dependencies or job.parallel is not Parallel.SINGLE:
        raise UsageError("kedge alloc takes no arrays, dependencies or ranks", hint="use kedge submit")
    if job.build:
        raise InvalidJob(
            "an interactive job cannot build its image before it starts",
            hint=f"build it in a job first: kedge submit --build {job.build} IMAGE COMMAND",
        )
    image = place_image(job, cluster.site, settings, environ, folder)
    seen = [path for path in (folder, image.path if "://" not in image.path else "") if path]
    architecture = read_architecture(image, cluster.site)
    checked = check_request(job, cluster.site, interactive=True, environ=environ, paths=seen, architecture=architecture)
    about_image = judge_image(checked.job, cluster.site, image, settings, environ)
    inside = _make_command(checked.job, cluster, image, folder)
    argv = cluster.backend.interactive_argv(checked.job, cluster.site, inside, has_terminal=has_terminal)
    takes_command = not inside or any(word == inside[-1] or inside[-1] in word for word in argv)
    step = ("srun", "--pty") if uses_pyxis(checked.job, cluster.site) else ()
    typed = () if takes_command else (*step, *inside)
    warnings = (*checked.warnings, *about_image.warnings)
    return Allocation(tuple(argv), typed, image, warnings, (*checked.notes, *about_image.notes))


def run_allocation(plan: Allocation, cluster: Cluster) -> NoReturn:
    """Request it: the scheduler's command replaces this process and gets its terminal and signals."""
    cluster.require_configuration(os.environ)
    if plan.image.when == NOW:
        pull_image(plan.image)
    path = find_program(plan.argv[0])
    if path is None:
        problem = ProgramMissing("", context={"PATH": os.environ.get("PATH", "")})
        raise cluster.explain_missing(plan.argv[0], problem)
    try:
        replace_process(path, plan.argv, os.environ)
    except OSError as problem:
        raise SchedulerFailed(f"cannot start '{plan.argv[0]}': {problem.strerror}") from problem


def _make_command(job: Job, cluster: Cluster, image: StagedImage, folder: str) -> list[str]:
    """The command for the node: a shell or a program, in the container or on the node itself."""
    # not with --env of the container, which splits values at commas
    variables = [f"{name}={value}" for name, value in job.environment]
    words = ["env", *variables] if variables else []
    if not job.image:
        return [*words, *(job.command or [os.environ.get("SHELL") or "/bin/bash"])]
    directory = str(Path(folder, job.directory)) if job.directory else ""
    if uses_pyxis(job, cluster.site):  # options of the srun before the command
        return [*pyxis_options(job, cluster.site, directory or folder), *words, *(job.command or _ANY_SHELL)]
    words += [find_kedge(), "exec" if job.command else "shell"]
    if job.uses_gpus:
        words.append("--nv")
    if job.force:
        words.append("--force")
    words += [word for bind in (*cluster.site.binds, *job.binds) for word in ("--bind", bind)]
    words += job.container_options
    words += ["--pwd", directory] if directory else []
    # the node pulls an image that this node must not pull, when the container starts
    source = image.reference if image.reference and image.when != NOW else image.path
    return [*words, source, *job.command]
