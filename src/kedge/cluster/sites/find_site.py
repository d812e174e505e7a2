# SPDX-License-Identifier: BSD-3-Clause
"""Detects the site of this host, lists the known sites, loads their profiles."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.schedulers.current_job import find_current_job
from kedge.cluster.site import Site
from kedge.cluster.sites.profile import (
    SiteSummary,
    find_folders,
    find_unreadable_settings,
    list_signs,
    list_sites,
    load_site,
)
from kedge.errors import KedgeError, NoScheduler
from kedge.system.programs import find_program
from kedge.system.settings import Settings

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.cluster.sites.detect import Candidate, HostSigns


@frozen
class Detected:
    """The site that commands use on this host, the reason, and other candidates."""

    site: Site
    reason: str
    others: tuple[Candidate, ...]
    hostnames: tuple[str, ...]


def choose_site(settings: Settings, environ: Mapping[str, str], *, name: str = "") -> Site:
    """The site `name`, else the requested one (--site, KEDGE_SITE, a setting), else the detected one.

    Starts no program, because every submission calls it.
    """
    folders = find_folders(environ)
    if name or settings.site:
        return load_site(name or settings.site or "", folders)
    from kedge.cluster.sites.detect import detect_site  # late: who names the site needs none of it

    return load_site(detect_site(look_around(environ), list_signs(folders))[0].site, folders)


def detect_here(settings: Settings, environ: Mapping[str, str]) -> Detected:
    """Detect the site, with the reason and the other candidates."""
    from kedge.cluster.sites.detect import detect_site  # late, as above

    folders = find_folders(environ)
    machine = look_around(environ)
    found = detect_site(machine, list_signs(folders))
    if settings.site:
        reason = f"requested ({settings.sources['site']})"
        others = tuple(each for each in found if each.site != settings.site)
        return Detected(load_site(settings.site, folders), reason, others, machine.hostnames)
    return Detected(load_site(found[0].site, folders), found[0].reason, tuple(found[1:]), machine.hostnames)


def list_known(environ: Mapping[str, str]) -> list[SiteSummary]:
    """Every site with a profile."""
    return list_sites(find_folders(environ))


def look_around(environ: Mapping[str, str]) -> HostSigns:
    """The host names, variables, programs and files by which sites are detected."""
    from kedge.cluster.sites.detect import HostSigns, list_names, list_scheduler_signs  # late, as above

    names = list_names(os.uname().nodename, _read_text("/etc/hosts"), _read_text("/etc/resolv.conf"))
    wanted_programs, wanted_files = list_scheduler_signs()
    programs = frozenset(name for name in wanted_programs if find_program(name))
    files = frozenset(name for name in wanted_files if Path(name).exists())
    return HostSigns(names, environ, programs, files)


def require_settings(scheduler: str, environ: Mapping[str, str]) -> None:
    """Refuse at once what the scheduler's programs refuse after a minute of patience."""
    path = find_unreadable_settings(find_facts(scheduler), environ)
    if path:
        name = find_facts(scheduler).settings
        raise NoScheduler(
            f"{name} is '{path}', which cannot be read", hint=f"'unset {name}', or set it to the right file"
        )


def _read_text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


# The site of a launch. Inside a job its profile may be missing: the user's directory is not on every node.


def find_site(settings: Settings, environ: Mapping[str, str], warn: Callable[[str], None]) -> Site:
    """The site that was asked for or detected; inside a job, where it is unknown, one without rules of its own."""
    job = find_current_job(environ)
    try:
        return choose_site(settings, environ)
    except KedgeError as problem:
        if job is None:
            raise
        warn(f"{problem.message} on this node: launching without its settings")
        return Site("unknown", "unknown", job.scheduler)
