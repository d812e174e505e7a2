# SPDX-License-Identifier: BSD-3-Clause
"""The site: whether it has a profile, whether this is inside a job, whether compute nodes see what jobs need."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.storage.cache_home import is_folder
from kedge.answers.doctor.surroundings import Surroundings
from kedge.cluster.schedulers.current_job import find_current_job
from kedge.cluster.site import Site, expand_path
from kedge.cluster.sites.profile import is_retired
from kedge.cluster.sites.rules import find_hidden_root
from kedge.errors import KedgeError
from kedge.jobs.records import Records, find_record_root

_SITE, _SHARED, _RECORDS = (f"kedge help doctor {name}" for name in ("site", "shared-folders", "job-records"))


def check_site(surroundings: Surroundings) -> list[Finding]:
    """The detected site, and whether this process is inside a job."""
    site = surroundings.site
    if site is None:
        return [Finding("site", NOTE, "unknown site", why="", fix="kedge site detect", docs=_SITE)]
    return [_judge_site(site), *_describe_job(surroundings)]


def _judge_site(site: Site) -> Finding:
    if site.scheduler == "local":
        return Finding(
            "site",
            NOTE,
            "no scheduler found",
            why="kedge submit uses the local queue of this host",
            fix="on a cluster, run kedge on a login node, where the scheduler is installed; or choose a site "
            "with --site",
            docs=_SITE,
        )
    if is_retired(site):
        return Finding(
            "site",
            WARNING,
            f"{site.name} ({site.title}) is switched off",
            why="no job runs there any more; the profile remains because documents name the site",
            fix="find its successor: kedge site list",
            docs=_SITE,
        )
    if site.name.startswith("generic-"):
        return Finding(
            "site",
            NOTE,
            f"{site.name}: this cluster has no profile",
            why="kedge cannot check requests against its limits before submission",
            fix="write a profile from the scheduler's answers: kedge site init",
            docs=_SITE,
        )
    return Finding("site", OK, f"{site.name} ({site.title})")


def _describe_job(surroundings: Surroundings) -> list[Finding]:
    site, job = surroundings.site, find_current_job(surroundings.environ)
    if job is not None:
        queue = f" in queue {_show(job.queue)}" if job.queue else ""
        return [Finding("site", OK, f"inside job {_show(job.id)}{queue}")]
    if site is not None and site.scheduler != "local":
        return [Finding("site", OK, "not inside a job: results apply to this node only")]
    return []


def _show(text: str) -> str:
    return text[:64] if re.fullmatch(r"[\w.:@\[\]-]{1,64}", text[:64]) else "with an odd name"


def check_shared_folders(surroundings: Surroundings) -> list[Finding]:
    """Whether compute nodes see kedge itself and the working directory."""
    site, environ = surroundings.site, surroundings.environ
    if site is None or site.scheduler == "local":
        return []
    findings = []
    kedge = f"{sys.prefix}/bin/kedge"
    hidden = find_hidden_root(kedge, site, environ)
    if hidden is not None:
        what = f"compute nodes of {site.name} do not see {hidden}, where kedge is installed"
        why = "jobs start containers with this kedge, so kedge submit refuses them"
        fix = f"install kedge on {site.scratch or 'a file system that they see'} and use that one"
        findings.append(Finding("shared-folders", WARNING, what, why=why, fix=fix, docs=_SHARED))
    if not site.home_on_nodes and site.scratch and not expand_path(site.scratch, environ):
        what = f"{site.scratch} is not set, and compute nodes of {site.name} do not see your home"
        why = "no directory for images and records is visible to compute nodes"
        findings.append(
            Finding(
                "shared-folders", WARNING, what, why=why, fix="set the variable as the site documents it", docs=_SHARED
            )
        )
    if not findings and not site.home_on_nodes:
        what = f"compute nodes of {site.name} do not see your home"
        why = "jobs cannot see files there"
        fix = f"work below {expand_path(site.scratch, environ) or site.scratch or 'the scratch of the site'}"
        return [Finding("shared-folders", NOTE, what, why=why, fix=fix, docs=_SHARED)]
    return findings or [Finding("shared-folders", OK, _tell_shared(site))]


def _tell_shared(site: Site) -> str:
    """What the profile says; no node was checked."""
    if site.name.startswith("generic-"):
        return "not checked: no site profile, so it is unknown whether compute nodes see your home and kedge"
    return f"compute nodes see your home and kedge, according to the profile of {site.name}"


def check_job_records(surroundings: Surroundings) -> list[Finding]:
    """Whether the records of jobs can be written; does not create their directory."""
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
            f"{present} {reason}, and records of jobs go to {root}",
            why="kedge cannot submit jobs without records",
            fix="choose a directory that compute nodes see: export KEDGE_JOBDIR=DIR",
            docs=_RECORDS,
        )
    ]


def _judge_records(root: Path) -> Finding:
    """Whether only the user can write them: kedge runs their scripts."""
    try:
        Records(root).refuse_intruders()
    except KedgeError as problem:
        why = "kedge can neither submit nor show jobs: others could have written the scripts that it runs"
        return Finding("job-records", FAIL, problem.message, why=why, fix=problem.hint or "", docs=_RECORDS)
    return Finding("job-records", OK, str(root))
