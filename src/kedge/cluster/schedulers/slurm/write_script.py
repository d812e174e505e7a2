# SPDX-License-Identifier: BSD-3-Clause
"""Batch scripts for sbatch, the command that submits them, and the id it prints."""

from __future__ import annotations

import re

from kedge.base.patterns import late_pattern
from kedge.cluster.job import Job
from kedge.cluster.output_pattern import make_file_name, split_pattern
from kedge.cluster.schedulers.backend import Dialect, ScriptContext
from kedge.cluster.schedulers.script_body import render_body
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.schedulers.slurm.options import SlurmOption, find_name, make_directive, parse_directives
from kedge.cluster.schedulers.slurm.write_options import batch_directives, command_line_directives
from kedge.cluster.site import Site
from kedge.errors import RequestRefused, SchedulerFailed

DIALECT = Dialect(
    submit_word=FACTS.submit,
    job_id="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}",
    array_index="SLURM_ARRAY_TASK_ID",
    # no `head`: with pipefail, a scontrol that writes on after it would end the script
    first_node=('nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")', "first_node=${nodes%%$'\\n'*}"),
    launcher="srun",
    broadcast=FACTS.broadcast,
)
# `12`, `12;cluster`, and the sentence that wrappers of sites print all the same
_SUBMITTED = late_pattern(r"^\s*(?:(\d+)(?:;[\w.-]+)?|Submitted batch job (\d+)(?: on cluster \S+)?)\s*$", re.MULTILINE)


def render(job: Job, site: Site, place: ScriptContext) -> str:
    """The whole script."""
    files = [make_directive("output", _make_pattern(place.output, job, site))]
    if "{id}" in place.output:  # so that only a requeue meets a file: it is to keep what the first attempt wrote
        files.append(make_directive("open-mode", "append"))
    if place.error:
        files.append(make_directive("error", _make_pattern(place.error, job, site)))
    lines = ["#!/bin/bash", *(f"#SBATCH {directive.text}" for directive in batch_directives(job, site, files))]
    return "\n".join([*lines, render_body(job, site, place, DIALECT)])


def submit_argv(script: str, job: Job, site: Site) -> list[str]:
    """`sbatch --parsable` and what the site wants beside it."""
    return [FACTS.submit, "--parsable", *_words(command_line_directives(job, site)), script]


def parse_submit(output: str) -> str:
    """The id, in the last line that holds one: sites print banners before it."""
    if output.isascii() and output.strip().isdigit():  # nothing else, as nearly always
        return output.strip()
    found: list[str] = [number or sentence for number, sentence in _SUBMITTED.findall(output)]
    if not found:
        raise SchedulerFailed(
            "sbatch printed no job id",
            context={"said": output.strip()[-2000:]},
            hint="check whether it was submitted: squeue --me",
        )
    return found[-1]


def _words(directives: list[SlurmOption]) -> list[str]:
    return [word for directive in directives for word in directive.words]


def _make_pattern(pattern: str, job: Job, site: Site) -> str:
    """%x, %j, %A and %a; a percent sign of the path itself is doubled."""
    if "\\" in pattern:
        raise RequestRefused(
            f"Slurm cannot write to a file with a backslash in its name: {pattern}",
            hint="choose another directory or another name with --output",
        )
    values = {
        "{name}": _name_in_pattern(job, site),
        "{id}": "%A" if job.array else "%j",
        "{index}": "%a" if job.array else "",
    }
    return "".join(values.get(part, part.replace("%", "%%")) for part in split_pattern(pattern))


def _name_in_pattern(job: Job, site: Site) -> str:
    """%x where it is what `kedge logs` expects: a name without slashes and the like, that nobody replaces."""
    name = make_file_name(job.name)
    changed = {find_name(word) for word in (*site.drop_directives, *job.drop_directives)}
    changed |= {directive.name for line in job.directives for directive in parse_directives(line)}
    return "%x" if name == job.name and "job-name" not in changed else name
