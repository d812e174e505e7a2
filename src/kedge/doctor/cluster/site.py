# SPDX-License-Identifier: BSD-3-Clause
"""The site: whether this cluster is known, whether this is a job, and whether compute nodes see what jobs need."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.doctor.storage.cache_home import is_folder
from kedge.doctor.surroundings import Surroundings
from kedge.errors import KedgeError
from kedge.jobs.records import Records, find_record_root
from kedge.model.site import Site, expand_path
from kedge.schedulers.current_job import find_current_job
from kedge.sites.profile import is_retired
from kedge.sites.rules import find_hidden_root

_SITE, _SHARED, _RECORDS = (f"kedge help doctor {name}" for name in ("site", "shared-folders", "job-records"))


def check_site(surroundings: Surroundings) -> list[Finding]:
    """Which site this is, and whether this process is part of a job."""
    site = surroundings.site
    if site is None:
        return [Finding("site", NOTE, "which site this is was not found out", "", "kedge site detect", _SITE)]
    return [_judge_site(site), *_describe_job(surroundings)]


def _judge_site(site: Site) -> Finding:
    if site.scheduler == "local":
        return Finding(
            "site",
            NOTE,
            "no scheduler is here",
            "'kedge submit' puts jobs into the queue of this machine, where they run one after the other",
            "on a cluster, run it on a login node, where sbatch or qsub is found; --site names a site",
            _SITE,
        )
    if is_retired(site):
        return Finding(
            "site",
            WARNING,
            f"{site.name} ({site.title}) is switched off",
            "its profile is kept because documents name it: no job runs there any more",
            "'kedge site list' names its successor",
            _SITE,
        )
    if site.name.startswith("generic-"):
        return Finding(
            "site",
            NOTE,
            f"{site.name}: there is no profile of this cluster",
            "kedge knows its scheduler and not its queues: what a job asks for cannot be checked before it waits",
            "'kedge site init' writes one from what the scheduler says",
            _SITE,
        )
    return Finding("site", OK, f"{site.name} ({site.title})")


def _describe_job(surroundings: Surroundings) -> list[Finding]:
    site, job = surroundings.site, find_current_job(surroundings.environ)
    if job is not None:
        queue = f" of the queue {_show(job.queue)}" if job.queue else ""
        return [Finding("site", OK, f"this is inside job {_show(job.id)}{queue}")]
    if site is not None and site.scheduler != "local":
        return [Finding("site", OK, "this is outside of jobs: what is found out holds for this node, not for others")]
    return []


def _show(text: str) -> str:
    return text[:64] if re.fullmatch(r"[\w.:@\[\]-]{1,64}", text[:64]) else "with an odd name"


def check_shared_folders(surroundings: Surroundings) -> list[Finding]:
    """Whether compute nodes see kedge itself, and the directory that jobs are to work in."""
    site, environ = surroundings.site, surroundings.environ
    if site is None or site.scheduler == "local":
        return []
    findings = []
    kedge = f"{sys.prefix}/bin/kedge"
    hidden = find_hidden_root(kedge, site, environ)
    if hidden is not None:
        what = f"compute nodes of {site.name} do not see {hidden}, and kedge is installed there"
        why = "jobs start containers with this very kedge: 'kedge submit' refuses them"
        fix = f"install kedge on {site.scratch or 'a file system that they see'}, and use that one"
        findings.append(Finding("shared-folders", WARNING, what, why, fix, _SHARED))
    if not site.home_on_nodes and site.scratch and not expand_path(site.scratch, environ):
        what = f"{site.scratch} is not set, and compute nodes of {site.name} do not see your home"
        why = "images and records of jobs have no place that nodes see, too"
        findings.append(Finding("shared-folders", WARNING, what, why, "set it as the site's documents say", _SHARED))
    if not findings and not site.home_on_nodes:
        what = f"compute nodes of {site.name} do not see your home"
        why = "files there are missing in jobs"
        fix = f"work below {expand_path(site.scratch, environ) or site.scratch or 'the scratch of the site'}"
        return [Finding("shared-folders", NOTE, what, why, fix, _SHARED)]
    return findings or [Finding("shared-folders", OK, _tell_shared(site))]


def _tell_shared(site: Site) -> str:
    """Nobody looked on a node: it is what the profile says, if there is one."""
    if site.name.startswith("generic-"):
        return "whether compute nodes see your home and kedge is not known here: there is no profile of this cluster"
    return f"compute nodes see your home and kedge, by the profile of {site.name}"


def check_job_records(surroundings: Surroundings) -> list[Finding]:
    """Whether records of jobs can be written, without making their directory."""
    site = surroundings.site
    if site is None:
        return []
    root = find_record_root(surroundings.settings, site, surroundings.environ)
    present = root
    while not os.path.exists(present) and present != present.parent:  # noqa: PTH110 - its own raises where we may not look
        present = present.parent
    can_hold = is_folder(present)
    if can_hold and os.access(present, os.W_OK | os.X_OK):
        return [_judge_records(root)]
    reason = "cannot be written" if can_hold else "is a file"
    return [
        Finding(
            "job-records",
            FAIL,
            f"records of jobs belong in {root}, and {present} {reason}",
            "no job can be submitted: how it went would be lost",
            "choose another place, which compute nodes see: export KEDGE_JOBDIR=DIR",
            _RECORDS,
        )
    ]


def _judge_records(root: Path) -> Finding:
    """Whether they are the user's alone: their scripts are run."""
    try:
        Records(root).refuse_intruders()
    except KedgeError as problem:
        why = "no job can be submitted or looked at: others could have written what kedge runs"
        return Finding("job-records", FAIL, problem.message, why, problem.hint or "", _RECORDS)
    return Finding("job-records", OK, str(root))
