# SPDX-License-Identifier: BSD-3-Clause
"""Decides whether a job copies kedge and its image to every node first, by the model of `launch/start_model`."""

from __future__ import annotations

from pathlib import Path

from kedge.cluster.job import Job, StagedImage
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.schedulers.container_words import runtime_of
from kedge.cluster.site import Site
from kedge.jobs.stage_image import FileStaging
from kedge.launch.start_model import (
    BUNDLE,
    INSTALLED,
    STAGED,
    WORTH,
    FileServer,
    JobSize,
    estimate_saving,
    estimate_start,
    find_server,
)

ALWAYS, NEVER = "always", "never"
_MOUNTS = Path("/proc/self/mountinfo")


def plan_staging(job: Job, site: Site, kedge: str, image: StagedImage, mounts: Path = _MOUNTS) -> FileStaging:
    """Decide by `--stage`; jobs on one node, and those whose image another program fetches, copy nothing."""
    runtime = runtime_of(job, site)
    if job.stage == NEVER or job.node_count == 1 or not image.path or "://" in image.path or runtime == "pyxis":
        return FileStaging()
    program = find_facts(site.scheduler).broadcast
    if job.stage == ALWAYS:
        return _stage_always(job, kedge if runtime == "kedge" else "", program)
    about_kedge = _judge_kedge(job, kedge, program, mounts) if runtime == "kedge" else FileStaging()
    about_image = _judge_image(job, site, image.path, program, mounts)
    return FileStaging(about_kedge.kedge, about_image.image, (*about_kedge.notes, *about_image.notes))


def _stage_always(job: Job, kedge: str, program: str) -> FileStaging:
    notes: tuple[str, ...] = ()
    is_copied = bool(kedge and program) and _measure_bundle(kedge) > 0
    if kedge and not program:
        notes = ("The image is copied to every node, kedge is not: only Slurm has a command for that (sbcast)",)
    elif kedge and not is_copied:
        notes = (f"The image is copied to every node, kedge is not: {kedge} is an installation of many files",)
    return FileStaging(is_copied, not job.broadcast, notes)


def _judge_kedge(job: Job, kedge: str, program: str, mounts: Path) -> FileStaging:
    server, kind = _find_file_system(kedge, mounts)
    if server is None:
        return FileStaging()
    size = JobSize(job.node_count, job.tasks_on_node)
    length = _measure_bundle(kedge)
    if not length:
        then = min(estimate_start(way, server, size) for way in ((BUNDLE, STAGED) if program else (BUNDLE,)))
        return _propose_bundle(kedge, kind, size, (estimate_start(INSTALLED, server, size), then))
    fewer = size.nodes * size.ranks * (BUNDLE.later - STAGED.later)
    saved = estimate_saving(length, server, size.nodes, fewer)
    if saved < WORTH or not program:
        return FileStaging()
    return FileStaging(kedge=True, notes=(_say_saving("kedge", size.nodes, program, saved, kind),))


def _propose_bundle(kedge: str, kind: str, size: JobSize, seconds: tuple[float, float]) -> FileStaging:
    """Say what an installation costs at this size, and a bundle, if it costs much more."""
    now, then = seconds
    if now - then < WORTH:
        return FileStaging()
    note = (
        f"Starting {kedge} ({kind}) on {size.nodes:,} nodes × {size.ranks} takes about {now:.0f} s;"
        f" as one file about {max(then, 1):.0f} s: see 'kedge bundle'"
    )
    return FileStaging(notes=(note,))


def _judge_image(job: Job, site: Site, image: str, program: str, mounts: Path) -> FileStaging:
    """A node's own disk must be known: /tmp may be memory, and an image is large."""
    if job.broadcast or not program or not site.node_directory:
        return FileStaging()
    server, kind = _find_file_system(image, mounts)
    length = _measure_file(image)
    if server is None or not length:
        return FileStaging()
    saved = estimate_saving(length, server, job.node_count)
    if saved < WORTH:
        return FileStaging()
    return FileStaging(image=True, notes=(_say_saving("the image", job.node_count, program, saved, kind),))


def _say_saving(what: str, nodes: int, program: str, saved: float, kind: str) -> str:
    return (
        f"The job copies {what} to all {nodes:,} nodes with {program}: about {saved:.0f} s faster than reading it"
        f" from {kind}. To read it in place: --stage never"
    )


def _find_file_system(path: str, mounts: Path) -> tuple[FileServer | None, str]:
    from kedge.system.host.space import find_mount  # late: jobs on one node need none of it

    mount = find_mount(Path(path), mounts)
    return (find_server(mount.kind), mount.kind) if mount else (None, "")


def _measure_bundle(kedge: str) -> int:
    """Return the size of kedge if it is one file; 0 for an installation."""
    from kedge.system.spawn import ELFMAG  # late: jobs on one node need none of it

    try:
        with Path(kedge).open("rb") as file:  # an installed kedge begins with #!
            return Path(kedge).stat().st_size if file.read(4) == ELFMAG else 0
    except OSError:
        return 0


def _measure_file(path: str) -> int:
    """0: not there yet, or a directory."""
    try:
        return Path(path).stat().st_size if Path(path).is_file() else 0
    except OSError:
        return 0
