# SPDX-License-Identifier: BSD-3-Clause
"""The scheduler: whether its programs are installed and answer, whether the profile matches, and MPI under srun."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from kedge.answers.doctor.storage import is_folder
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Finding, Surroundings
from kedge.cluster.host_mpi import find_mpi
from kedge.cluster.schedulers.advice import find_advice, find_missing_setup
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.schedulers.current_job import find_current_job
from kedge.cluster.schedulers.facts import SchedulerFacts
from kedge.cluster.schedulers.mpi_types import LIST_COMMAND, parse_mpi_types
from kedge.cluster.site import Queue, Site, expand_path
from kedge.cluster.sites.discover import compare_sites
from kedge.cluster.sites.profile import find_unreadable_settings, is_retired
from kedge.cluster.sites.rules import find_hidden_root
from kedge.errors import KedgeError
from kedge.jobs.records import Records, find_record_root
from kedge.system.lean_programs import Finished
from kedge.system.owned_names import find_user_name
from kedge.system.process import run_program
from kedge.system.programs import find_program
from kedge.system.threads import answer_within

SECONDS = 1.1  # a scheduler that takes longer is in trouble, or its file system is
_SCHEDULER, _MPI, _ACCOUNT = (f"kedge help doctor {name}" for name in ("scheduler", "mpi-plugins", "accounts"))
_MOST_SHOWN = 4
_LONGEST_WORD = 64


def check_scheduler(surroundings: Surroundings) -> list[Finding]:
    """Whether the site's scheduler answers and has the queues of the profile."""
    site = surroundings.site
    tools = find_facts(site.scheduler) if site is not None else None
    if site is None or tools is None or not tools.queues:
        return []  # the check of the site reports it
    wrong = _find_broken_settings(surroundings.environ, site) or _find_missing(tools, site)
    if wrong is not None:
        return [wrong]
    answers = _ask_all(surroundings, {"version": tools.version, "queues": tools.queues})
    version = _read_version(answers.get("version"))
    answer = answers.get("queues")
    if answer is None:
        return [_explain_late(tools, version, SECONDS * surroundings.patience)]
    if answer.status:
        return [_explain_refusal(tools, version, answer)]
    names = list(dict.fromkeys(re.findall(tools.queue_line, answer.text, re.MULTILINE)))
    shown = f"{version or tools.title} answers, and has {len(names)} queue{'' if len(names) == 1 else 's'}"
    return [Finding("scheduler", OK, shown), *_compare(site, names)]


def _ask_all(surroundings: Surroundings, questions: Mapping[str, Sequence[str]]) -> dict[str, Finished]:
    """The answers of programs of the scheduler, by name, without those that came too late."""
    seconds, environ = SECONDS * surroundings.patience, dict(surroundings.environ)
    asked = {
        name: partial(run_program, argv, environment=environ, timeout=seconds, check=False)
        for name, argv in questions.items()
    }
    return answer_within(seconds, asked)


def _find_broken_settings(environ: Mapping[str, str], site: Site) -> Finding | None:
    facts = find_facts(site.scheduler)
    path = find_unreadable_settings(facts, environ)
    if not path:
        return None
    return Finding(
        "scheduler",
        FAIL,
        f"{facts.settings} is '{path}', which cannot be read",
        why=f"{facts.title}'s programs wait a minute for it, and end with an error",
        fix=f"unset {facts.settings}, or set it to the right file",
        docs=_SCHEDULER,
    )


def _find_missing(tools: SchedulerFacts, site: Site) -> Finding | None:
    missing = [name for name in (tools.submit, tools.queues[0]) if find_program(name) is None]
    if not missing:
        return None
    return Finding(
        "scheduler",
        WARNING,
        f"'{missing[0]}' was not found, and site {site.name} needs it for {tools.title}",
        why="no job can be submitted from this host",
        fix="run kedge on a login node of the site; load the scheduler's module (module avail); or choose "
        "another --site",
        docs=_SCHEDULER,
    )


def _explain_late(tools: SchedulerFacts, version: str, seconds: float) -> Finding:
    return Finding(
        "scheduler",
        WARNING,
        f"{version or tools.title} did not answer '{' '.join(tools.queues)}' within {seconds:g} s",
        why="the scheduler is busy or down: submissions wait or fail",
        fix=f"try it yourself: time {tools.queues[0]}. If it stays slow, tell the site; running jobs are not affected",
        docs=_SCHEDULER,
    )


def _explain_refusal(tools: SchedulerFacts, version: str, answer: Finished) -> Finding:
    said = (answer.errors or answer.output).decode(errors="replace").strip()
    missing = find_missing_setup(said)
    if missing is not None:
        return Finding(
            "scheduler",
            WARNING,
            missing[0],
            why="no job can be submitted from this host",
            fix=missing[1],
            docs=_SCHEDULER,
        )
    last = "".join(c if c.isprintable() else " " for c in said.splitlines()[-1])[:300] if said else "nothing"
    return Finding(
        "scheduler",
        FAIL,
        f"{version or tools.title} is installed, but '{tools.queues[0]}' fails: {last}",
        why="kedge can neither submit jobs nor read their state",
        fix=find_advice(said) or f"try it yourself: {tools.queues[0]}; show the message to the site",
        docs=_SCHEDULER,
    )


def _read_version(answer: Finished | None) -> str:
    """`slurm 23.11.4`: the first line with a version number, from either stream."""
    text = (answer.output + answer.errors).decode(errors="replace") if answer is not None else ""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\d+\.\d+", line)]
    return lines[0][:_LONGEST_WORD] if lines and lines[0].isprintable() else ""


def _compare(site: Site, names: Sequence[str]) -> list[Finding]:
    """Queues that only the profile or only the scheduler has; `kedge site check` also compares limits."""
    live = Site(name=site.name, title="", scheduler=site.scheduler, queues=tuple(Queue(name) for name in names))
    found = [str(each) for each in compare_sites(site, live)]
    if not found:
        return []
    more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return [
        Finding(
            "scheduler",
            NOTE,
            f"the profile of {site.name} differs from the scheduler: {'; '.join(found[:_MOST_SHOWN])}{more}",
            why="the profile is out of date: kedge may propose requests that the scheduler refuses, and misses "
            "new queues",
            fix="compare all of it: kedge site check; write a new profile: kedge site init",
            docs=_SCHEDULER,
        )
    ]


def check_mpi_plugins(surroundings: Surroundings) -> list[Finding]:
    """The MPI plugins of srun: the ranks of an image find each other through one of them."""
    site = surroundings.site
    if site is None or site.scheduler != "slurm" or find_program(LIST_COMMAND[0]) is None:
        return []
    if _find_broken_settings(surroundings.environ, site) is not None:
        return []
    answer = _ask_all(surroundings, {"list": LIST_COMMAND}).get("list")
    plugins = parse_mpi_types((answer.output + answer.errors).decode(errors="replace")) if answer is not None else []
    if not plugins:
        return []  # the check of the scheduler reports it
    shown = f"srun has {', '.join(plugins)}"
    if site.mpi_type and site.mpi_type not in plugins:
        why = f"the profile of {site.name} starts ranks with --mpi={site.mpi_type}: srun refuses that"
        fix = f"name one of these in the profile ('kedge site show {site.name}'): mpi_type = \"{plugins[-1]}\""
        return [Finding("mpi-plugins", WARNING, shown, why=why, fix=fix, docs=_MPI)]
    if not any(plugin.startswith(("pmi", "cray")) for plugin in plugins):
        why = "ranks in containers do not find each other under srun: each is rank 0 of 1"
        fix = "start MPI jobs with mpirun (--launcher mpirun); ask the site for Slurm's PMIx plugin"
        return [Finding("mpi-plugins", WARNING, shown, why=why, fix=fix, docs=_MPI)]
    if not any(plugin.startswith("pmix") for plugin in plugins):
        why = "Open MPI 5, and often Open MPI 4, support PMIx only: such ranks do not find each other under srun"
        fix = "start those with mpirun (--launcher mpirun); MPICH, MVAPICH2 and Intel MPI work"
        return [Finding("mpi-plugins", NOTE, shown, why=why, fix=fix, docs=_MPI)]
    return [Finding("mpi-plugins", OK, shown)]


def check_accounts(surroundings: Surroundings) -> list[Finding]:
    """Whether Slurm has the account that jobs are charged to; only with accounting."""
    site = surroundings.site
    if site is None or site.scheduler != "slurm" or find_program("sacctmgr") is None:
        return []
    argv = ("sacctmgr", "-n", "-P", "show", "assoc", f"user={find_user_name(surroundings.environ)}", "format=Account")
    answer = _ask_all(surroundings, {"accounts": argv}).get("accounts")
    accounts = _read_accounts(answer)
    if not accounts:
        return []  # no accounting, or its database does not answer
    named = surroundings.environ.get("SBATCH_ACCOUNT") or site.account
    shown = f"yours: {', '.join(accounts[:8])}" + (" …" if len(accounts) > 8 else "")
    if named and named not in accounts:
        what = f"Slurm has no account '{named[:_LONGEST_WORD]}' for you; {shown}"
        where = "SBATCH_ACCOUNT" if surroundings.environ.get("SBATCH_ACCOUNT") else f"the profile of {site.name}"
        fix = f"correct it in {where}, or give --account {accounts[0]}"
        return [Finding("accounts", WARNING, what, why="Slurm refuses jobs with this account", fix=fix, docs=_ACCOUNT)]
    if not named and "account" in site.requires:
        why = f"{site.name} refuses jobs without an account, and none is set"
        fix = f'give --account {accounts[0]}, or put it into a profile of yours: account = "{accounts[0]}"'
        return [Finding("accounts", NOTE, shown, why=why, fix=fix, docs=_ACCOUNT)]
    return [Finding("accounts", OK, shown)]


def _read_accounts(answer: Finished | None) -> list[str]:
    if answer is None or answer.status:
        return []
    words = [line.strip().rstrip("|") for line in answer.text.splitlines()]
    return list(dict.fromkeys(word for word in words if re.fullmatch(r"[\w.@+-]{1,64}", word)))


# The MPI of this host, whose mpirun can start ranks in containers.

_HOST_MPI = "mpi"
_HOST_MPI_DOCS = f"kedge help doctor {_HOST_MPI}"
_SECONDS = 0.8  # for a launcher to say what it is


def check_mpi(surroundings: Surroundings) -> list[Finding]:
    """The MPI in this environment and its version."""
    mpi = find_mpi(surroundings.environ, deadline=_SECONDS * surroundings.patience)
    if mpi is None:
        why = "mpirun on the host cannot start ranks in containers; jobs on one node, and jobs with srun, need no MPI"
        fix = "load a module, such as 'module load openmpi', or start ranks with 'srun --mpi=pmix'"
        return [
            Finding(_HOST_MPI, NOTE, "no MPI in PATH, and no MPI module loaded", why=why, fix=fix, docs=_HOST_MPI_DOCS)
        ]
    if not mpi.version:
        what = f"{mpi.launcher} is of an unknown MPI: '--version' does not name it"
        why = "kedge cannot tell whether it can start the MPI of an image"
        return [Finding(_HOST_MPI, NOTE, what, why=why, fix="try it yourself: mpirun --version", docs=_HOST_MPI_DOCS)]
    where = f" ({mpi.launcher})" if mpi.launcher else f" (by {mpi.source})"
    return [Finding(_HOST_MPI, OK, f"{mpi.title}{where}")]


# The site: whether it has a profile, whether this is inside a job, whether compute nodes see what jobs need.

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
