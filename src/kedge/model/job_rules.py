# SPDX-License-Identifier: BSD-3-Clause
"""What contradicts itself in the description of a job, whatever the site. Each problem names the field it is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from kedge.errors import InvalidJob
from kedge.frozen import frozen
from kedge.model.job import Job, Parallel
from kedge.model.job_fields import BY_NAME, FIELDS, JobField
from kedge.model.job_values import MOST, VARIABLE_NAME
from kedge.model.nearest import propose

PLACEHOLDERS = ("name", "id", "index")
_SLURM_PATTERNS = {"j": "{id}", "A": "{id}", "x": "{name}", "a": "{index}"}


@frozen
class Problem:
    """One thing that cannot be."""

    field: str  # of Job
    message: str
    hint: str


def check_job(job: Job, *, needs_command: bool = True) -> Job:
    """The job itself, or InvalidJob for the first thing that cannot be."""
    for problem in find_problems(job, needs_command=needs_command):
        key = BY_NAME[problem.field].key
        raise InvalidJob(f"{key}: {problem.message}", context={"key": key}, hint=problem.hint)
    return job


def find_problems(job: Job, *, needs_command: bool = True) -> Iterator[Problem]:
    """Everything that contradicts itself; an interactive job needs no command."""
    if needs_command and not job.image and not job.command:
        yield Problem(
            "command", "there is nothing to run: neither an image nor a command", "give an image, a command, or both"
        )
    for rule in _RULES:
        found = rule(job)
        if found is not None:
            yield found


def _check_command(job: Job) -> Problem | None:
    first = job.command[0] if job.command else ""
    if job.runscript or job.parallel is Parallel.TORCHRUN or not first.startswith("-"):
        return None
    return Problem("command", f"it begins with '{first}', which is no program", _OPTIONS_FIRST)


_OPTIONS_FIRST = "options stand before the image; arguments for the image's own script need --runscript"


def _check_counts(job: Job) -> Problem | None:
    for name in ("nodes", "tasks", "tasks_per_node", "cpus_per_task", "gpus_per_node", "time", *_MEMORY):
        value = getattr(job, name)
        if value is not None and value < 1:
            return Problem(name, f"it cannot be {value}", "give 1 or more, or leave it out")
        if value is not None and BY_NAME[name].kind in ("count", "gpus") and value > MOST:
            return Problem(name, f"it cannot be {value}", f"{MOST} are the most")
    return None


_MEMORY = ("memory", "memory_per_cpu", "memory_per_gpu")


def _check_memory(job: Job) -> Problem | None:
    given = [name for name in _MEMORY if getattr(job, name)]
    if len(given) > 1:
        return Problem(given[1], f"{given[0]} says already how much memory there is", f"keep one: {' or '.join(given)}")
    if job.memory_per_gpu and not job.gpus_per_node:
        return Problem(
            "memory_per_gpu", "the job has no GPUs", "ask for GPUs, or say how much memory a node or CPU has"
        )
    return None


def _check_gpus(job: Job) -> Problem | None:
    if job.gpu_type and not job.gpus_per_node:
        return Problem("gpu_type", f"how many '{job.gpu_type}'?", "say how many GPUs each node has to have")
    return None


def _check_tasks(job: Job) -> Problem | None:
    nodes, tasks, each = job.nodes, job.tasks, job.tasks_per_node
    if job.parallel is Parallel.TORCHRUN:
        return _check_torchrun(job)
    if tasks and nodes and tasks < nodes:
        return Problem("tasks", f"{tasks} tasks leave some of {nodes} nodes idle", f"ask for {tasks} nodes, or fewer")
    if tasks and nodes and each and tasks != nodes * each:
        return Problem(
            "tasks",
            f"{nodes} nodes with {each} tasks each make {nodes * each}, not {tasks}",
            f"ask for {nodes * each} tasks, or leave one of the three out",
        )
    if tasks and each and tasks % each:
        return Problem(
            "tasks",
            f"{tasks} tasks cannot be {each} on each node",
            f"{tasks - tasks % each or each} or {tasks - tasks % each + each} tasks can",
        )
    return None


def _check_torchrun(job: Job) -> Problem | None:
    if not job.command:
        return Problem("command", "torchrun has no program to start", "name it: train.py and its arguments")
    if (job.tasks_per_node or 1) != 1 or (job.tasks or job.nodes or 1) != (job.nodes or job.tasks or 1):
        name = "tasks_per_node" if (job.tasks_per_node or 1) != 1 else "tasks"
        return Problem(
            name,
            "torchrun is one task on each node, and starts a process for each GPU itself",
            "leave tasks out; gpus says how many processes there are",
        )
    return None


def _check_environment(job: Job) -> Problem | None:
    seen = set()
    for name, _ in job.environment:
        if not VARIABLE_NAME.fullmatch(name):
            return Problem("environment", f"{name!r} is no name of a variable", "names are letters, digits and _")
        if name in seen:
            return Problem("environment", f"{name} has two values", "give it once")
        seen.add(name)
    return None


def _check_dependencies(job: Job) -> Problem | None:
    for each in job.dependencies:
        if not each.job or each.job != each.job.strip() or re.search("[,:]", each.job):
            return Problem("dependencies", f"{each.job!r} is no id and no name to wait for", "give one job at a time")
    return None


def _check_patterns(job: Job) -> Problem | None:
    for field in ("output", "error"):
        text: str = getattr(job, field)
        for word in re.findall(r"\{([^{}]*)\}", text):
            if word not in PLACEHOLDERS:
                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                return Problem(
                    field, f"nothing is put in for {{{word}}}", propose(word, PLACEHOLDERS) or f"use {known}"
                )
        for letter in re.findall(r"%[0-9]*([jAxa])", text):
            return Problem(
                field,
                f"%{letter} is a pattern of Slurm's, and others write it as it is",
                f"write {_SLURM_PATTERNS[letter]}",
            )
    return None


def _check_texts(job: Job) -> Problem | None:
    """Jobs made by programs, which no reader has seen: a line break in a directive would be two directives."""
    for field in FIELDS:
        for text in _list_texts(job, field):
            if "\0" in text:
                return Problem(field.name, "there is a NUL byte in it, which no program can be given", "take it out")
            if field.kind in _ONE_LINE and re.search(r"[\x00-\x1f\x7f]", text):
                shown = f"{text[:60]!r} has a line break or another control character in it"
                return Problem(field.name, shown, "take it out")
            if field.kind in ("text", "list") and not text.strip():
                return Problem(field.name, "there is an empty text", "take it out, or say what it should be")
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
        return [each.job for each in job.dependencies]
    return value if isinstance(value, tuple) else []


_RULES: tuple[Callable[[Job], Problem | None], ...] = (
    _check_command,
    _check_counts,
    _check_memory,
    _check_gpus,
    _check_tasks,
    _check_environment,
    _check_dependencies,
    _check_patterns,
    _check_texts,
)
