# SPDX-License-Identifier: BSD-3-Clause
"""The scheduler: whether its programs are here and it answers, what it has against the profile, and MPI under srun."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from functools import partial

from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.model.site import Queue, Site
from kedge.posix.bounded_threads import answer_within
from kedge.posix.process import Finished, run_program
from kedge.posix.programs import find_program
from kedge.schedulers.advice import find_advice, find_missing_setup
from kedge.schedulers.choose import find_facts
from kedge.schedulers.facts import SchedulerFacts
from kedge.sites.compare import compare_sites
from kedge.sites.detect import find_unreadable_settings

SECONDS = 1.1  # a scheduler that takes longer is in trouble, or its file system is
_SCHEDULER, _MPI, _ACCOUNT = (f"kedge help doctor {name}" for name in ("scheduler", "mpi-plugins", "accounts"))
_MOST_SHOWN = 4
_LONGEST_WORD = 64


def check_scheduler(surroundings: Surroundings) -> list[Finding]:
    """Whether the site's scheduler answers, and has the queues that the profile names."""
    site = surroundings.site
    tools = find_facts(site.scheduler) if site is not None else None
    if site is None or tools is None or not tools.queues:
        return []  # the check of the site says that there is none
    wrong = _find_broken_settings(surroundings.environ, site) or _find_missing(tools, site)
    if wrong is not None:
        return [wrong]
    answers = _ask_all(surroundings, {"version": tools.version, "queues": tools.queues})
    version = _read_version(answers.get("version"))
    told = answers.get("queues")
    if told is None:
        return [_explain_late(tools, version, SECONDS * surroundings.patience)]
    if told.status:
        return [_explain_refusal(tools, version, told)]
    names = list(dict.fromkeys(re.findall(tools.queue_line, told.text, re.MULTILINE)))
    shown = f"{version or tools.title} answers, and has {len(names)} queue{'' if len(names) == 1 else 's'}"
    return [Finding("scheduler", OK, shown), *_compare(site, names)]


def _ask_all(surroundings: Surroundings, questions: Mapping[str, Sequence[str]]) -> dict[str, Finished]:
    """What programs of the scheduler say, by name; those that do not answer in time are not among them."""
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
        f"{facts.title}'s programs wait a minute for it, and end with an error",
        f"unset {facts.settings}, or set it to the right file",
        _SCHEDULER,
    )


def _find_missing(tools: SchedulerFacts, site: Site) -> Finding | None:
    missing = [name for name in (tools.submit, tools.queues[0]) if find_program(name) is None]
    if not missing:
        return None
    return Finding(
        "scheduler",
        WARNING,
        f"'{missing[0]}' is not here, and {site.name} is a site with {tools.title}",
        "no job can be submitted from this machine",
        "run it on a login node of the site; often a module has to be loaded ('module avail'), or --site names another",
        _SCHEDULER,
    )


def _explain_late(tools: SchedulerFacts, version: str, seconds: float) -> Finding:
    return Finding(
        "scheduler",
        WARNING,
        f"{version or tools.title} did not answer '{' '.join(tools.queues)}' within {seconds:g} s",
        "the scheduler is busy or down: submissions wait, or fail",
        f"try it yourself: time {tools.queues[0]}. If it stays slow, tell the site; jobs that run are not touched",
        _SCHEDULER,
    )


def _explain_refusal(tools: SchedulerFacts, version: str, told: Finished) -> Finding:
    said = (told.errors or told.output).decode(errors="replace").strip()
    missing = find_missing_setup(said)
    if missing is not None:
        return Finding(
            "scheduler", WARNING, missing[0], "no job can be submitted from this machine", missing[1], _SCHEDULER
        )
    last = "".join(c if c.isprintable() else " " for c in said.splitlines()[-1])[:300] if said else "nothing"
    return Finding(
        "scheduler",
        FAIL,
        f"{version or tools.title} is here, and '{tools.queues[0]}' fails: {last}",
        "jobs can neither be submitted nor asked about",
        find_advice(said) or "try it yourself, and show the site what it says",
        _SCHEDULER,
    )


def _read_version(told: Finished | None) -> str:
    """`slurm 23.11.4`: the first line that has a number, of what is printed to either stream."""
    text = (told.output + told.errors).decode(errors="replace") if told is not None else ""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\d+\.\d+", line)]
    return lines[0][:_LONGEST_WORD] if lines and lines[0].isprintable() else ""


def _compare(site: Site, names: Sequence[str]) -> list[Finding]:
    """Queues that only one of profile and scheduler knows; their limits are what `kedge site check` compares."""
    live = Site(name=site.name, title="", scheduler=site.scheduler, queues=tuple(Queue(name) for name in names))
    found = [str(each) for each in compare_sites(site, live)]
    if not found:
        return []
    more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return [
        Finding(
            "scheduler",
            NOTE,
            f"the profile of {site.name} is not what the scheduler has: {'; '.join(found[:_MOST_SHOWN])}{more}",
            "profiles age: what is proposed for jobs may be refused, and new queues are not proposed",
            "'kedge site check' compares all of it; 'kedge site init' writes a new profile",
            _SCHEDULER,
        )
    ]


def check_mpi_plugins(surroundings: Surroundings) -> list[Finding]:
    """Which process managers srun has: MPI in an image finds its ranks through one of them, or through none."""
    site = surroundings.site
    if site is None or site.scheduler != "slurm" or find_program("srun") is None:
        return []
    if _find_broken_settings(surroundings.environ, site) is not None:
        return []
    told = _ask_all(surroundings, {"list": ("srun", "--mpi=list")}).get("list")
    plugins = parse_plugins((told.output + told.errors).decode(errors="replace")) if told is not None else []
    if not plugins:
        return []  # the check of the scheduler says what is wrong with it
    shown = f"srun has {', '.join(plugins)}"
    if site.mpi_type and site.mpi_type not in plugins:
        why = f"the profile of {site.name} starts ranks with --mpi={site.mpi_type}: srun refuses that"
        fix = f"name one of these in the profile ('kedge site show {site.name}'): mpi_type = \"{plugins[-1]}\""
        return [Finding("mpi-plugins", WARNING, shown, why, fix, _MPI)]
    if not any(each.startswith(("pmi", "cray")) for each in plugins):
        why = "ranks in containers do not find each other under srun: each believes that it is alone (rank 0 of 1)"
        fix = "start MPI jobs with mpirun (--launcher mpirun); ask the site for Slurm's PMIx plugin"
        return [Finding("mpi-plugins", WARNING, shown, why, fix, _MPI)]
    if not any(each.startswith("pmix") for each in plugins):
        why = "Open MPI 5 knows PMIx only, and Open MPI 4 often: such ranks do not find each other under srun"
        fix = "start those with mpirun (--launcher mpirun); MPICH, MVAPICH2 and Intel MPI are served"
        return [Finding("mpi-plugins", NOTE, shown, why, fix, _MPI)]
    return [Finding("mpi-plugins", OK, shown)]


def parse_plugins(text: str) -> list[str]:
    """The names that `srun --mpi=list` prints: a line each, in old versions behind `srun:`, of PMIx several."""
    found = []
    for line in text.splitlines():
        words = line.strip().removeprefix("srun:").strip()
        if "available:" in words:
            found += words.partition("available:")[2].replace(",", " ").split()
        elif re.fullmatch(r"[a-z0-9_]{1,32}", words):
            found.append(words)
    return list(dict.fromkeys(found))


def check_accounts(surroundings: Surroundings) -> list[Finding]:
    """Whether Slurm knows the account that jobs are charged to; only where there is one to ask about."""
    site = surroundings.site
    if site is None or site.scheduler != "slurm" or find_program("sacctmgr") is None:
        return []
    argv = ("sacctmgr", "-n", "-P", "show", "assoc", f"user={_find_user(surroundings.environ)}", "format=Account")
    told = _ask_all(surroundings, {"accounts": argv}).get("accounts")
    accounts = _read_accounts(told)
    if not accounts:
        return []  # no accounts are kept here, or the database does not answer: it is asked again at submission
    named = surroundings.environ.get("SBATCH_ACCOUNT") or site.account
    shown = f"yours: {', '.join(accounts[:8])}" + (" …" if len(accounts) > 8 else "")
    if named and named not in accounts:
        what = f"Slurm has no account '{named[:_LONGEST_WORD]}' for you; {shown}"
        where = "SBATCH_ACCOUNT" if surroundings.environ.get("SBATCH_ACCOUNT") else f"the profile of {site.name}"
        fix = f"correct it in {where}, or give --account {accounts[0]}"
        return [Finding("accounts", WARNING, what, "jobs that are charged to it are refused", fix, _ACCOUNT)]
    if not named and "account" in site.requires:
        why = f"{site.name} refuses jobs without an account, and none is set"
        fix = f'give --account {accounts[0]}, or put it into a profile of yours: account = "{accounts[0]}"'
        return [Finding("accounts", NOTE, shown, why, fix, _ACCOUNT)]
    return [Finding("accounts", OK, shown)]


def _read_accounts(told: Finished | None) -> list[str]:
    if told is None or told.status:
        return []
    words = [line.strip().rstrip("|") for line in told.text.splitlines()]
    return list(dict.fromkeys(word for word in words if re.fullmatch(r"[\w.@+-]{1,64}", word)))


def _find_user(environ: Mapping[str, str]) -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return environ.get("USER", str(os.getuid()))
