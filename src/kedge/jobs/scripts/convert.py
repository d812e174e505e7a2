# SPDX-License-Identifier: BSD-3-Clause
"""A script -> a job, with a list of everything that could not be carried over. Nothing is dropped without a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kedge.base.frozen import replace
from kedge.base.secret_text import mask_secrets
from kedge.cluster.job import Job
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.schedulers.script_request import Left, ScriptRequest
from kedge.cluster.site import Site
from kedge.errors import InvalidJob
from kedge.jobs.scripts.convert_body import convert_body
from kedge.jobs.scripts.read_request import read_request
from kedge.jobs.scripts.script import BatchScript
from kedge.jobs.scripts.variables import find_own_names

_SAME = """name nodes tasks tasks_per_node cpus_per_task gpu_type memory memory_per_cpu memory_per_gpu time exclusive
account queue qos reservation constraint array dependencies begin mail mail_on output error directory environment"""
# names that mean something on one cluster only
_LOCAL = {
    "queue": "the queue",
    "qos": "the QOS",
    "reservation": "the reservation",
    "constraint": "the constraint",
    "gpu_type": "the GPU type",
    "begin": "the start time",
    "dependencies": "the list of jobs it depends on",
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """The job, what is lost, and what was decided on the way; both with their lines."""

    job: Job
    left: tuple[Left, ...]
    remarks: tuple[tuple[int, str], ...]


def convert_script(script: BatchScript, *, target: str = "", site: Site | None = None) -> Conversion:
    """The job that a script describes. `target` is the scheduler it is for, `site` the place; empty: as before.

    Raises InvalidJob for what no job of kedge's can be: one of LSF or Flux, or a heterogeneous one.
    """
    _refuse(script)
    target = target or script.scheduler
    request = read_request(script, site)
    body = convert_body(script, request)
    fields = _take_fields(request, body.remarks)
    fields["environment"] = tuple(
        {**dict(fields.get("environment") or ()), **body.fields.pop("environment", {})}.items()
    )
    fields |= {key: value for key, value in body.fields.items() if value or value is False}
    left = [*_find_ignored(script), *body.left]
    if target == script.scheduler:
        kept = [loss for loss in request.left if loss.words and not loss.is_refused]
        fields["directives"] = tuple(_quote(directive.words) for directive in kept)
        left += [loss for loss in request.left if loss not in kept]
    else:
        left += request.left
        left += _drop_local(fields, request, site)
        left += _find_foreign(script, fields, target)
    fields.pop("parallel_environment", None)
    job = Job(**fields)
    _note_gpus(script, job, body.remarks)
    lost = [replace(loss, words=mask_secrets(loss.words), why=mask_secrets(loss.why)) for loss in left]
    return Conversion(job, tuple(sorted(lost, key=lambda each: each.line)), tuple(sorted(body.remarks)))


def _refuse(script: BatchScript) -> None:
    language = script.language
    if not language.is_read:
        title, prefix = language.facts.title, language.facts.prefix
        raise InvalidJob(
            f"kedge cannot convert a script for {title}: it does not read {prefix} lines",
            context={"scheduler": title},
            hint=f"replace the {prefix} lines by #SBATCH, #PBS or #$ lines that request the same",
        )
    between = next((directive for directive in script.live if directive.option in language.separators), None)
    if between is not None:
        raise InvalidJob(
            f"kedge cannot describe a heterogeneous job: line {between.line} begins a second part",
            context={"line": str(between.line), "directive": between.raw.strip()},
            hint=f"submit it with {language.facts.submit}, or split it into one job for each part",
        )


def _take_fields(request: ScriptRequest, remarks: list[tuple[int, str]]) -> dict[str, Any]:
    fields = {key: request.get(key) for key in _SAME.split() if key in request.asked}
    per_node = request.gpus_per_node
    if per_node:
        fields["gpus_per_node"] = per_node
    total = request.number("gpus")
    if total and "gpus_per_node" not in request.asked and request.nodes > 1:
        remarks.append((request.line("gpus"), f"{total} GPUs per job became {per_node} per node"))
    if limit := request.number("array_limit"):
        fields["array"] = replace(fields["array"], limit=limit) if "array" in fields else None
    if "mail_on" in fields and not fields.get("mail"):
        remarks.append((request.line("mail_on"), "kedge sends no mail: the script gives no address"))
        del fields["mail_on"]
    if request.get("join") and "output" in fields:
        fields.pop("error", None)
    return {key: value for key, value in fields.items() if value not in (None, "")}


def _quote(words: str) -> str:
    """A directive whose value has blanks or a # needs quotes."""
    name, equals, value = words.partition("=")
    if name.startswith("--") and equals and (" " in value or "#" in value) and '"' not in value:
        return f'{name}="{value}"'
    return words


def _find_ignored(script: BatchScript) -> list[Left]:
    """What the scheduler did not read is not carried over either; that of the same kind is worth a word."""
    return [
        Left(directive.line, "", f"the scheduler ignored it already: {directive.raw.strip()} ({directive.reason})")
        for directive in script.directives
        if not directive.is_live and directive.reason != "it is a comment"
    ]


def _drop_local(fields: dict[str, Any], request: ScriptRequest, site: Site | None) -> list[Left]:
    left = []
    for key, what in _LOCAL.items():
        if key not in fields or (key == "queue" and site is not None and site.find_queue(fields[key]) is not None):
            continue
        value = fields.pop(key)
        shown = ", ".join(each.job for each in value) if key == "dependencies" else value
        left.append(
            Left(
                request.line(key),
                "",
                f"{what} belongs to the old cluster: {shown}",
            )
        )
    return left


def _find_foreign(script: BatchScript, fields: dict[str, Any], target: str) -> list[Left]:
    """Variables that only the old scheduler sets, and the job still uses."""
    words = "\n".join([*fields.get("setup", ()), *fields.get("command", ()), *fields.get("container_options", ())])
    left = []
    for name in find_own_names(script.scheduler, words):
        line = next((number for number, text in script.body if name in text), 1)
        left.append(Left(line, "", f"{find_facts(target).title} does not set {name}, which the job uses"))
    return left


def _note_gpus(script: BatchScript, job: Job, remarks: list[tuple[int, str]]) -> None:
    if not job.image or not script.containers:
        return
    call = script.containers[0]
    if job.wants_gpus and not call.gives_gpus:
        remarks.append((call.line, "kedge adds --nv, because the script requests GPUs"))
