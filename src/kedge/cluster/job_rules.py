# SPDX-License-Identifier: BSD-3-Clause
"""Checks a job for contradictions, independent of the site. Each problem names its field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from kedge.base.frozen import frozen
from kedge.cluster.job import Job, Parallel
from kedge.cluster.job_fields import BY_NAME, FIELDS, JobField
from kedge.cluster.job_values import MOST, VARIABLE_NAME
from kedge.errors import InvalidJob

PLACEHOLDERS = ("name", "id", "index")
_SLURM_PATTERNS = {"j": "{id}", "A": "{id}", "x": "{name}", "a": "{index}"}


@frozen
class Problem:
    """One contradiction or invalid value."""

    field: str  # of Job
    message: str
    hint: str


def check_job(job: Job, *, needs_command: bool = True) -> Job:
    """The job itself; raises InvalidJob for the first problem."""
    for problem in find_problems(job, needs_command=needs_command):
        key = BY_NAME[problem.field].key
        raise InvalidJob(f"{key}: {problem.message}", context={"key": key}, hint=problem.hint)
    return job


def find_problems(job: Job, *, needs_command: bool = True) -> Iterator[Problem]:
    """Yield all problems of a job; an interactive job needs no command."""
    if needs_command and not job.image and not job.command:
        yield Problem("command", "neither an image nor a command is given", "give an image, a command, or both")
    for rule in _RULES:
        problem = rule(job)
        if problem is not None:
            yield problem


def _check_command(job: Job) -> Problem | None:
    first = job.command[0] if job.command else ""
    if job.runscript or job.parallel is Parallel.TORCHRUN or not first.startswith("-"):
        return None
    return Problem("command", f"it begins with '{first}', which is not a program", _OPTIONS_FIRST)


_OPTIONS_FIRST = "put options before the image; to pass arguments to the image's runscript add --runscript"


def _check_counts(job: Job) -> Problem | None:
    for name in ("nodes", "tasks", "tasks_per_node", "processes", "cpus_per_task", "gpus_per_node", "time", *_MEMORY):
        value = getattr(job, name)
        if value is not None and value < 1:
            return Problem(name, f"it cannot be {value}", "give 1 or more, or leave it out")
        if value is not None and BY_NAME[name].kind in ("count", "gpus") and value > MOST:
            return Problem(name, f"it cannot be {value}", f"the maximum is {MOST}")
    return None


def _check_processes(job: Job) -> Problem | None:
    if job.processes is None or job.parallel is Parallel.TORCHRUN:
        return None
    return Problem("processes", "only torchrun starts several processes per task", "add --torchrun, or use --tasks")


_MEMORY = ("memory", "memory_per_cpu", "memory_per_gpu")


def _check_memory(job: Job) -> Problem | None:
    given = [name for name in _MEMORY if getattr(job, name)]
    if len(given) > 1:
        return Problem(given[1], f"{given[0]} already sets the memory", f"keep one: {' or '.join(given)}")
    if job.memory_per_gpu and not job.gpus_per_node:
        return Problem("memory_per_gpu", "the job has no GPUs", "request GPUs, or give the memory per node or CPU")
    return None


def _check_gpus(job: Job) -> Problem | None:
    if job.gpu_type and not job.gpus_per_node:
        return Problem(
            "gpu_type", f"the number of '{job.gpu_type}' GPUs is missing", "give the number of GPUs per node"
        )
    return None


def _check_tasks(job: Job) -> Problem | None:
    nodes, tasks, per_node = job.nodes, job.tasks, job.tasks_per_node
    if job.parallel is Parallel.TORCHRUN:
        return _check_torchrun(job)
    if tasks and nodes and tasks < nodes:
        return Problem("tasks", f"{tasks} tasks leave some of {nodes} nodes idle", f"request at most {tasks} nodes")
    if tasks and nodes and per_node and tasks != nodes * per_node:
        return Problem(
            "tasks",
            f"{nodes} nodes with {per_node} tasks each make {nodes * per_node}, not {tasks}",
            f"request {nodes * per_node} tasks, or leave out one of the three",
        )
    if tasks and per_node and tasks % per_node:
        fewer = tasks - tasks % per_node
        fitting = f"{fewer} or {fewer + per_node}" if fewer else f"{per_node}"
        return Problem("tasks", f"{tasks} tasks cannot be {per_node} on each node", f"request {fitting} tasks")
    return None


def _check_torchrun(job: Job) -> Problem | None:
    if not job.command:
        return Problem("command", "torchrun has no program to start", "give one: train.py and its arguments")
    if (job.tasks_per_node or 1) != 1 or (job.tasks or job.nodes or 1) != (job.nodes or job.tasks or 1):
        name = "tasks_per_node" if (job.tasks_per_node or 1) != 1 else "tasks"
        return Problem(
            name,
            "torchrun is one task per node and starts one process per GPU itself",
            "leave out tasks; gpus sets the number of processes",
        )
    return None


def _check_environment(job: Job) -> Problem | None:
    seen = set()
    for name, _ in job.environment:
        if not VARIABLE_NAME.fullmatch(name):
            return Problem("environment", f"{name!r} is not a variable name", "names consist of letters, digits and _")
        if name in seen:
            return Problem("environment", f"{name} has two values", "give it once")
        seen.add(name)
    return None


def _check_dependencies(job: Job) -> Problem | None:
    for name in (dependency.job for dependency in job.dependencies):
        if not name or name != name.strip() or re.search("[,:]", name):
            return Problem("dependencies", f"{name!r} is not a job to wait for", "give one job at a time")
    return None


def _check_patterns(job: Job) -> Problem | None:
    for field in ("output", "error"):
        text: str = getattr(job, field)
        if "{" not in text and "%" not in text:
            continue
        for word in re.findall(r"\{([^{}]*)\}", text):
            if word not in PLACEHOLDERS:
                from kedge.base.nearest import propose  # late: only for a mistake

                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                return Problem(field, f"{{{word}}} is not a placeholder", propose(word, PLACEHOLDERS) or f"use {known}")
        for letter in re.findall(r"%[0-9]*([jAxa])", text):
            return Problem(
                field,
                f"%{letter} is a pattern of Slurm; other schedulers do not know it",
                f"write {_SLURM_PATTERNS[letter]}",
            )
    return None


def _check_texts(job: Job) -> Problem | None:
    """Check the texts of jobs made by programs: a line break in a directive would make two directives."""
    for field in FIELDS:
        for text in _list_texts(job, field):
            if "\0" in text:
                return Problem(field.name, "it contains a NUL byte, which no program accepts", "remove it")
            if field.kind in _ONE_LINE and not text.isprintable() and re.search(r"[\x00-\x1f\x7f]", text):
                shown = f"{text[:60]!r} contains a line break or another control character"
                return Problem(field.name, shown, "remove it")
            if field.kind in ("text", "list") and not text.strip():
                return Problem(field.name, "it contains an empty text", "remove it, or give a value")
            if field.choices and text and text not in field.choices:
                known = ", ".join(field.choices)
                return Problem(field.name, f"{text[:60]!r} is not one of: {known}", f"give one of: {known}")
    return None


_ONE_LINE = ("line", "moment", "list", "dependencies", "choice", "choices")


def _list_texts(job: Job, field: JobField) -> Sequence[str]:
    value = getattr(job, field.name)
    if isinstance(value, str):
        return [value]
    if field.kind == "pairs":
        return [text for _, text in job.environment]
    if field.kind == "dependencies":
        return [dependency.job for dependency in job.dependencies]
    return value if isinstance(value, tuple) else []


_RULES: tuple[Callable[[Job], Problem | None], ...] = (
    _check_command,
    _check_counts,
    _check_processes,
    _check_memory,
    _check_gpus,
    _check_tasks,
    _check_environment,
    _check_dependencies,
    _check_patterns,
    _check_texts,
)
