# SPDX-License-Identifier: BSD-3-Clause
"""Where the user is: host, GPUs, scheduler, job, cache; and the commands that are likely next there.

What `kedge` alone shows. It asks no scheduler and no network, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import JsonValue, frozen
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.site import Site
from kedge.cluster.sites.find_site import detect_here
from kedge.cluster.this_host import read_this_host
from kedge.errors import KedgeError
from kedge.launch.surroundings import read_allocation_here
from kedge.system.host.gpu_devices import list_gpus
from kedge.system.host.gpu_probe import probe_gpus
from kedge.system.host.space import free_space
from kedge.system.settings import Settings

_MOST_FILES = 2000  # of the current directory that are looked at for an image
_REFERENCE = "docker://nvcr.io/nvidia/pytorch:24.03-py3"


@frozen
class NextStep(JsonValue):
    """A command, and what it does."""

    command: str
    does: str


@frozen
class Here(JsonValue):
    """What is known without asking anybody. Empty: there is none, or it is unknown."""

    host: str
    cpus: int
    gpus: tuple[str, ...]  # names, or "GPU" where the driver does not tell
    driver: str
    site: str
    scheduler: str  # its title; empty: none
    reason: str  # for the site
    job: str  # the job that this shell is part of
    nodes: int  # of that job
    cache: str
    cache_free: int | None
    image: str  # the newest image file of the current directory
    next: tuple[NextStep, ...]


def find_here(settings: Settings, environ: Mapping[str, str], directory: Path) -> Here:
    """Look around."""
    machine = read_this_host(environ)
    gpus, driver = _find_gpus() if machine.gpus else ((), "")
    found = detect_here(settings, environ)
    scheduler = "" if found.site.scheduler == "local" else find_facts(found.site.scheduler).title
    job, nodes = _find_job(environ)
    image = _find_image(directory)
    return Here(
        host=machine.name,
        cpus=machine.cpus,
        gpus=gpus,
        driver=driver,
        site=found.site.name,
        scheduler=scheduler,
        reason=found.reason,
        job=job,
        nodes=nodes,
        cache=str(settings.cache_directory),
        cache_free=_find_free(settings.cache_directory),
        image=image,
        next=list_next(found.site, image, has_gpus=bool(gpus), is_job=bool(job), nodes=nodes),
    )


def list_next(site: Site, image: str, *, has_gpus: bool, is_job: bool, nodes: int) -> tuple[NextStep, ...]:
    """Three commands that fit the place: in a job, on a login node, or on a workstation."""
    name = image or "IMAGE"
    nv = " --nv" if has_gpus else ""
    first = NextStep(f"kedge pull {_REFERENCE}", "pull an image")
    run = NextStep(f"kedge exec{nv} {name} python train.py", "run a program in it")
    if is_job:
        start = NextStep(f"kedge launch{nv} --torchrun {name} train.py", f"run it on {_count(nodes)} of this job")
        return (run if image else first, start, NextStep("kedge doctor", "check this node"))
    if site.scheduler == "local":
        look = NextStep(f"kedge explain {name}", "does it run here?")
        return (look if image else first, run, NextStep("kedge doctor", "check this host"))
    if not image and any(queue.gpu for queue in site.queues):
        first = NextStep(f"kedge recommend pytorch --on {site.name}", "find one for its GPUs")
    submit = NextStep(f"kedge submit --gpus 1 --time 1h {name} python train.py", "run it as a job")
    return (run if image else first, submit, NextStep(f"kedge alloc --gpus 1 --time 1h {name}", "get a shell in a job"))


def _count(nodes: int) -> str:
    return "the node" if nodes == 1 else f"all {nodes} nodes"


def _find_gpus() -> tuple[tuple[str, ...], str]:
    probe = probe_gpus()
    names = tuple(gpu.name or "GPU" for gpu in probe.gpus)
    return names or ("GPU",) * len(list_gpus()), probe.driver


def _find_job(environ: Mapping[str, str]) -> tuple[str, int]:
    try:
        allocation = read_allocation_here(environ)
    except KedgeError:
        return "", 0
    return (allocation.job_id, allocation.node_count) if allocation.job_id else ("", 0)


def _find_free(place: Path) -> int | None:
    try:
        return free_space(place).free
    except KedgeError:
        return None


def _find_image(directory: Path) -> str:
    """The newest `.sif` or `.sqsh` file there, as the user would type it."""
    found: list[tuple[float, str]] = []
    try:
        for index, path in enumerate(directory.iterdir()):
            if index >= _MOST_FILES:
                break
            if path.suffix in (".sif", ".sqsh") and path.is_file():
                found.append((path.stat().st_mtime, path.name))
    except OSError:
        return ""
    return max(found)[1] if found else ""
