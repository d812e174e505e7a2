# SPDX-License-Identifier: BSD-3-Clause
"""The backend for the queue of this host.

Its programs are kedge's own (`kedge local-queue`), which read `#KEDGE` lines as sbatch reads its own. What only a
cluster has (accounts, queues, mail) means nothing here and is left out, so that one description serves both.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence

from kedge.base.duration import format_duration
from kedge.cluster.job import Job
from kedge.cluster.job_state import JobStatus, State, decode_status
from kedge.cluster.memory import shorten_memory
from kedge.cluster.schedulers.backend import Backend, Dialect, Query, ScriptContext
from kedge.cluster.schedulers.exit_text import explain_exit, explain_memory, explain_timeout
from kedge.cluster.schedulers.local import FACTS
from kedge.cluster.schedulers.script_body import render_body
from kedge.cluster.site import Site
from kedge.errors import RequestRefused, SchedulerFailed
from kedge.system.start_kedge import own_command

DIALECT = Dialect(
    submit_word="kedge local-queue submit",
    job_id="${KEDGE_LOCAL_JOB_ID}",
    array_index="KEDGE_LOCAL_ARRAY_INDEX",
    first_node=('first_node="$KEDGE_LOCAL_HOST"',),
    launcher="mpirun",
)
_OPTION = re.compile(r"(?:#KEDGE\s+)?(?:--)?([a-z][a-z-]*)(?:(?:=|\s+)(.*))?", re.DOTALL)
_NOT_PLAIN = re.compile(r'[\x00-\x1f\x7f]|^["\s]|\s$')
_RESOURCES = {"cpus": "CPUs", "memory": "memory", "gpus": "GPUs"}


class _Local:
    name = FACTS.name

    @staticmethod
    def render(job: Job, site: Site, place: ScriptContext) -> str:
        """The whole script."""
        options = {"name": job.name, "directory": place.directory, "output": place.output}
        options |= {"error": place.error} if place.error else {}
        options |= _ask_for(job)
        options |= {"array": str(job.array)} if job.array else {}
        options |= {"begin": job.begin} if job.begin else {}
        after = ",".join(f"{dependency.kind.value}:{dependency.job}" for dependency in job.dependencies)
        options |= {"after": after} if after else {}
        lines = [_write_directive(name, value) for name, value in _change(options, job, site).items()]
        return "\n".join(["#!/bin/bash", *lines, render_body(job, site, place, DIALECT)])

    @staticmethod
    def submit_argv(script: str, job: Job, site: Site) -> list[str]:
        """Return the command that submits a script; all else is in the script."""
        del job, site
        return own_command("--json", "local-queue", "submit", script)

    @staticmethod
    def parse_submit(output: str) -> str:
        """`{"id": "12"}`, or the bare number that people see."""
        match = re.fullmatch(r'\s*(?:\{\s*"id":\s*"([0-9]+)"\s*\}|([0-9]+))\s*', output)
        if match is None:
            raise SchedulerFailed(
                "the local queue printed no job id",
                context={"said": output.strip()[-2000:]},
                hint="check whether it was submitted: kedge local-queue list",
            )
        return match[1] or match[2]

    @staticmethod
    def interactive_argv(job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
        """Waits until there is room, and runs the command right here."""
        del has_terminal
        options = _change({"name": job.name, **_ask_for(job)}, job, site)
        words = [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]
        return own_command("local-queue", "run", *words, "--", *command)

    @staticmethod
    def list_query(user: str) -> Query:
        """A queue is one user's."""
        del user
        return Query(tuple(own_command("--json", "local-queue", "list")))

    @staticmethod
    def detail_query(id: str) -> Query | None:
        """Return the call for one job, however long ago it ended."""
        return Query(tuple(own_command("--json", "local-queue", "show", id)))

    @staticmethod
    def history_query(ids: Sequence[str], since: float) -> Query | None:
        """The queue knows its jobs for three months."""
        del since
        return Query(tuple(own_command("--json", "local-queue", "show", *ids))) if ids else None

    @staticmethod
    def parse_list(output: str) -> list[JobStatus]:
        """Parse one JSON document."""
        try:
            return [decode_status(each) for each in json.loads(output)["jobs"]] if output.strip() else []
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise SchedulerFailed(
                f"kedge cannot read the local queue's answer: {problem}", context={"said": output.strip()[-2000:]}
            ) from None

    parse_detail = parse_list
    parse_history = parse_list

    @staticmethod
    def cancel_argv(ids: Sequence[str], signal: str = "") -> list[str]:
        """Jobs that are over already are passed over."""
        return own_command("--json", "local-queue", "cancel", *([f"--signal={signal}"] if signal else []), *ids)

    @staticmethod
    def explain(status: JobStatus) -> str:
        """Why it waits or how it failed."""
        if status.state in (State.QUEUED, State.HELD):
            return _explain_waiting(status)
        return _explain_end(status)

    @staticmethod
    def is_stuck(status: JobStatus) -> bool:
        """Whether what a job waits for ended otherwise, or it asks for more than there is."""
        return status.state is State.HELD and status.reason in ("DependencyNeverSatisfied", "BadConstraints")


BACKEND: Backend = _Local()


def _ask_for(job: Job) -> dict[str, str]:
    """The options that say how much of the machine."""
    if job.node_count > 1:
        raise RequestRefused(
            f"the job requests {job.node_count} nodes; the local queue has one, this host",
            context={"key": "nodes"},
            hint="request one node, or choose a cluster with --site",
        )
    cpus = job.tasks_on_node * (job.cpus_per_task or 1)
    gpus = job.gpus_per_node or 0
    memory = job.memory or (job.memory_per_cpu or 0) * cpus or (job.memory_per_gpu or 0) * gpus
    options = {"time": format_duration(job.time)} if job.time else {}
    options |= {"cpus": str(cpus)} if cpus > 1 else {}
    options |= {"memory": shorten_memory(memory)} if memory else {}
    options |= {"gpus": str(gpus)} if gpus else {}
    return options | ({"exclusive": ""} if job.exclusive else {})


def _change(options: Mapping[str, str], job: Job, site: Site) -> dict[str, str]:
    """Change the options as the site and the user add, replace and drop them."""
    changed = dict(options)
    for line in (*site.directives, *job.directives):
        found = _OPTION.fullmatch(line.strip())
        if found is None:
            raise RequestRefused(
                f"the local queue has no option '{line}'",
                context={"key": "directives"},
                hint="an option looks like --time=1:00:00; list them: kedge local-queue submit --help",
            )
        changed[found[1]] = found[2] or ""
    for word in (*site.drop_directives, *job.drop_directives):
        changed.pop(word.strip().lstrip("-").partition("=")[0], None)
    return changed


def _write_directive(name: str, value: str) -> str:
    if not value:
        return f"#KEDGE --{name}"
    return f"#KEDGE --{name}={json.dumps(value) if _NOT_PLAIN.search(value) else value}"


def _explain_waiting(status: JobStatus) -> str:
    details = dict(status.details)
    others = details.get("waits for", "").split()
    jobs = ("job " if len(others) == 1 else "jobs ") + ", ".join(others[:5]) + (" and others" if others[5:] else "")
    lacks = [_RESOURCES.get(each, each) for each in details.get("lacks", "").split()]
    wanted = " and ".join(lacks) or "room"
    begins = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(details.get("begins", "0"))))
    texts = {
        "": "it starts in a moment",
        "Resources": f"it waits for {wanted}" + (f", used by {jobs}" if others else ""),
        "Priority": f"it waits for {wanted}; {jobs} goes first",
        "Dependency": f"it waits for {jobs}",
        "DependencyNeverSatisfied": f"it never starts: {jobs} did not end as required; "
        f"cancel it with 'kedge cancel {status.id}' and submit it again",
        "JobArrayTaskLimit": "its array runs as many tasks at once as it allows",
        "BeginTime": f"it starts at {begins} (--begin)",
        "BadConstraints": f"it requests more {wanted} than this host has; cancel it and request less",
    }
    return texts.get(status.reason, status.reason)


def _explain_end(status: JobStatus) -> str:
    if status.state is State.TIMEOUT:
        return explain_timeout(status)
    if status.state is State.OUT_OF_MEMORY:
        return explain_memory(status.reason)
    if status.reason:
        return status.reason
    if status.state is State.CANCELLED:
        return "it was cancelled"
    return explain_exit(status) if status.state is State.FAILED else ""
