# SPDX-License-Identifier: BSD-3-Clause
"""Checks before submission whether ranks of the image's MPI find each other, where the script itself names the PMI.

With kedge's own runtime the script says `kedge launch`, which chooses on the node. Other runtimes stand behind the
words of the launcher, and srun's --mpi is that of the site's profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kedge.base.image_argument import is_reference
from kedge.cluster.job import Job, Parallel, StagedImage
from kedge.cluster.mpi import FAILS, INTEL, SINGLETONS, MpiHost, MpiImage
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.schedulers.container_words import runtime_of
from kedge.cluster.site import Site
from kedge.compat.mpi.judge_pmi import judge_pmi
from kedge.compat.mpi_for_launch import read_launched_mpi
from kedge.errors import KedgeError, LaunchRefused
from kedge.system.settings import Settings

FABRIC = "FI_PROVIDER"  # the variable by which libfabric, and so Intel MPI, is told what to use


def check_job_mpi(job: Job, site: Site, image: StagedImage, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings about the image's MPI; raises LaunchRefused if every rank would be alone, unless --force is given."""
    if job.parallel is not Parallel.MPI or not image.path or is_reference(image.path) or not Path(image.path).exists():
        return ()
    try:
        found = read_launched_mpi(image.path, environ, program="".join(job.command[:1]))
    except (KedgeError, OSError):
        return ()
    if found.is_searched and not found.mpis:
        return (f"{job.image} has no MPI library: its tasks are ranks only if the program brings MPI along",)
    about_srun = _check_srun(job, site, found) if _names_pmi(job, site) else ()
    is_intel = found.mpi is not None and found.mpi.family == INTEL
    return (*about_srun, *(_advise_intel(job, site) if is_intel else ()))


def advise_unpulled(
    job: Job, site: Site, image: StagedImage, settings: Settings, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Advise about Intel MPI of an image that the job pulls: its config or the tables tell of it."""
    if not image.reference and not is_reference(image.path):
        return ()
    from kedge.compat.data import learned_path
    from kedge.compat.tables.load import load_tables  # late: images in files are read without tables
    from kedge.jobs.check_image import read_staged_traits

    queue = site.find_queue(job.queue)
    try:
        tables = load_tables(learned_path(environ))
        traits = read_staged_traits(image, queue.arch if queue else "", settings, tables)
    except (KedgeError, OSError):
        return ()
    return _advise_intel(job, site) if traits is not None and traits.mpi.value.startswith(INTEL) else ()


def _advise_intel(job: Job, site: Site) -> tuple[str, ...]:
    """Say what Intel MPI of an image may need: its entry point, and what the site says of it."""
    advice = [note for note in site.notes if INTEL in note and FABRIC not in dict(job.environment)]
    if not job.runscript:
        advice.append(f"if the entry point of {job.image} sets {INTEL} up, as in images of TACC, add --runscript")
    return tuple(advice)


def _names_pmi(job: Job, site: Site) -> bool:
    """Whether the script has srun's --mpi: a site's `mpi_type` is for the launcher of its scheduler alone."""
    own = find_facts(site.scheduler).launcher_of_tasks
    is_own = (job.launcher or site.launcher or own) == own
    return is_own and bool(site.mpi_type) and runtime_of(job, site) != "kedge"


def _check_srun(job: Job, site: Site, found: MpiImage) -> tuple[str, ...]:
    verdict = judge_pmi(found, MpiHost(plugins=(site.mpi_type,), has_slurm=True))
    if verdict.level not in (FAILS, SINGLETONS):
        return ()
    problem = f"{job.image} does not fit the --mpi={site.mpi_type} of site {site.name}: {verdict.reason}"
    if job.force:
        return (problem,)
    raise LaunchRefused(
        problem,
        hint="leave out --runtime: kedge's own chooses the right --mpi; or set mpi_type in the site's profile; "
        "to submit it anyway add --force",
    )
