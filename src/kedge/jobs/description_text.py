# SPDX-License-Identifier: BSD-3-Clause
"""Writes kedge.toml: the text that `read_description` reads back as the same jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kedge.base.duration import shorten_duration
from kedge.base.frozen import replace
from kedge.base.toml_text import write_key, write_list, write_text
from kedge.cluster.job import Job
from kedge.cluster.job_fields import FIELDS, JobField
from kedge.cluster.job_rules import check_job
from kedge.cluster.memory import shorten_memory
from kedge.errors import InvalidJob


def write_description(jobs: Iterable[Job], *, site: str = "") -> str:
    """The text of a file with these jobs; raises InvalidJob for one that no file can describe."""
    listed = [check_job(job) for job in jobs]
    keys = _choose_keys(listed)
    names = dict(zip([job.name for job in reversed(listed)], reversed(keys), strict=True))
    blocks = [f"site = {write_text(site)}\n"] if site else []
    for key, job in zip(keys, listed, strict=True):
        known = {name: other for name, other in names.items() if name != job.name}  # its own is an earlier one's
        waits = tuple(
            replace(dependency, job=known.get(dependency.job, dependency.job)) for dependency in job.dependencies
        )
        try:
            blocks.append(_write_job(key, replace(job, dependencies=waits)))
        except UnicodeEncodeError:
            raise InvalidJob(
                f"the job '{key}' has bytes in it that are no text, which a file cannot hold",
                hint="rename the file or argument they come from, or give it on the command line",
            ) from None
    return "\n".join(blocks)


def _choose_keys(jobs: Sequence[Job]) -> list[str]:
    """The name of each job's table: its own where a table can have it."""
    own = {job.name for job in jobs}
    waits = {(dependency.job, job.name) for job in jobs for dependency in job.dependencies}
    taken = {waited for waited, name in waits if waited not in own or waited == name}  # elsewhere, and stay there
    keys: list[str] = []
    for job in jobs:
        plain = re.sub(r"[^\w.-]+", "-", job.name.encode(errors="replace").decode()).strip("-.")[:60] or "job"
        plain = f"job-{plain}" if plain.isdecimal() else plain
        key, number = plain, 2
        while key in taken or (key in own and key != job.name):
            key, number = f"{plain}-{number}", number + 1
        taken.add(key)
        keys.append(key)
    return keys


def _write_job(key: str, job: Job) -> str:
    lines = [f"[jobs.{write_key(key)}]"]
    if job.name != key:
        lines.append(f"name = {write_text(job.name)}")
    nothing = Job()
    said = [field for field in FIELDS if getattr(job, field.name) != getattr(nothing, field.name)]
    apart = ("name", "environment")
    lines += [f"{field.key} = {_write_value(field, job)}" for field in said if field.name not in apart]
    if job.environment:
        lines += ["", f"[jobs.{write_key(key)}.environment]"]
        lines += [f"{write_key(name)} = {write_text(value)}" for name, value in job.environment]
    return "\n".join(lines) + "\n"


def _write_value(field: JobField, job: Job) -> str:
    value = getattr(job, field.name)
    if field.kind == "memory":
        return write_text(shorten_memory(value))
    if field.kind == "duration":
        return write_text(shorten_duration(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return write_list([str(each) for each in value])
    return write_text(str(value))
