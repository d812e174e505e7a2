# SPDX-License-Identifier: BSD-3-Clause
"""What a job asks for in PBS's words: chunks of nodes, and the rest of qsub(1B)."""

from __future__ import annotations

import re

from kedge.base.duration import format_duration
from kedge.cluster.job import Job
from kedge.cluster.schedulers.backend import Dialect, ScriptContext
from kedge.cluster.schedulers.qsub_directives import (
    Grammar,
    Words,
    fill_gpu_type,
    make_job_name,
    read_directive,
    write_array,
    write_begin,
)
from kedge.cluster.schedulers.script_body import needs_lookup
from kedge.cluster.schedulers.shell_words import require_word
from kedge.cluster.site import Queue, Site
from kedge.errors import RequestRefused

GRAMMAR = Grammar(title="PBS", prefix="#PBS", keyed=("-l", "-W", "-v"), is_attached=True)

_NAME_LIMIT = 230
_MEGABYTE = 1 << 20
_MAIL = {"begin": "b", "end": "e", "fail": "a"}
_UNSAYABLE = re.compile(r"[,:\"'\\\s\x00-\x1f\x7f]")


def collect_request(job: Job, site: Site) -> list[Words]:
    """Directives that say how much, whose, where and when; the same for scripts and for `qsub -I`."""
    queue = site.find_queue(job.queue) if job.queue else site.default_queue
    lines: list[Words] = [("-N", make_job_name(job.name, _NAME_LIMIT))]
    chunk, apart = _describe_chunk(job, site, queue)
    lines.append(("-l", ":".join([f"select={job.node_count}", *chunk])))
    lines += apart
    lines += _place_chunks(job, site)
    if job.time:
        lines.append(("-l", f"walltime={format_duration(job.time)}"))
    lines += _choose_queue(job, site)
    if job.qos:
        raise RequestRefused(
            "PBS has no qualities of service",
            context={"key": "qos"},
            hint="leave out --qos; sites use queues for that",
        )
    account = job.account or site.account
    if account and not site.account_on_command_line:
        lines.append((site.account_option or "-A", require_word(account, "account")))
    return lines


def collect_batch(job: Job, place: ScriptContext, dialect: Dialect) -> list[Words]:
    """Directives that only a script has. Its output the script opens itself: PBS would bring it at the end."""
    remains = "/dev/null" if not place.record or _UNSAYABLE.search(place.record) else f"{place.record}/"
    lines: list[Words] = [("-S", "/bin/bash"), ("-j", "oe"), ("-o", remains)]
    if is_scheduler_array(job):
        lines.append(("-J", _write_indices(job, dialect)))
    if job.dependencies:
        lines.append(("-W", f"depend={_write_dependencies(job)}"))
    if job.begin:
        lines.append(("-a", write_begin(job.begin)))
    if job.mail:
        when = "".join(_MAIL[word] for word in job.mail_on if word in _MAIL) or "ae"
        lines += [("-M", require_word(job.mail, "mail")), ("-m", when)]
    return lines


def is_scheduler_array(job: Job) -> bool:
    """PBS has no arrays of one; such a job is a plain one that knows its index."""
    return job.array is not None and len(job.array) > 1


def _describe_chunk(job: Job, site: Site, queue: Queue | None) -> tuple[list[str], list[Words]]:
    """The parts of a chunk, and directives of their own."""
    is_whole = queue is not None and queue.is_whole_node
    processors = _count_processors(job)
    name = site.option("cpu_resource", "ncpus")
    parts = [f"{name}={processors}"] if processors and name else []
    if job.tasks or job.tasks_per_node:
        parts.append(f"mpiprocs={job.tasks_on_node}")
        parts += [f"ompthreads={job.cpus_per_task}"] if job.cpus_per_task else []
    apart: list[Words] = []
    for text in () if is_whole else (_write_gpus(job, site, queue), _write_memory(job, site)):
        if text.startswith("-"):
            apart += read_directive(text, GRAMMAR)
        elif text:
            parts.append(text)
    if job.constraint:
        parts.append(require_word(job.constraint, "constraint"))
    return parts, apart


def _count_processors(job: Job) -> int:
    """Per node; 0 when nothing was said about them."""
    if not (job.tasks or job.tasks_per_node or job.cpus_per_task):
        return 0
    return job.tasks_on_node * (job.cpus_per_task or 1)


def _write_gpus(job: Job, site: Site, queue: Queue | None) -> str:
    if not job.gpus_per_node or site.gpu_directive == "":
        return ""
    pattern = site.gpu_directive or "ngpus={count}"
    pattern = fill_gpu_type(pattern, job, site, queue, example="ngpus={count}:gpu_type={type}")
    return pattern.replace("{count}", str(job.gpus_per_node))


def _write_memory(job: Job, site: Site) -> str:
    amount = (
        job.memory
        or (job.memory_per_gpu or 0) * (job.gpus_per_node or 0)
        or (job.memory_per_cpu or 0) * max(_count_processors(job), 1)
    )
    if not amount or site.memory_directive == "":
        return ""
    megabytes = -(-amount // _MEGABYTE)
    size = f"{megabytes // 1024}gb" if megabytes % 1024 == 0 else f"{megabytes}mb"
    return (site.memory_directive or "mem={size}").replace("{size}", size)


def _place_chunks(job: Job, site: Site) -> list[Words]:
    """Chunks of one job may come to lie on one node, also on one that is its alone, unless they are scattered.

    A site where CPUs cannot be asked for gives whole nodes for chunks.
    """
    if not site.option("cpu_resource", "ncpus"):
        return []
    words = [*(["scatter"] if job.node_count > 1 else []), *(["excl"] if job.exclusive else [])]
    return [("-l", f"place={':'.join(words)}")] if words else []


def _choose_queue(job: Job, site: Site) -> list[Words]:
    """A reservation of PBS is a queue of its own."""
    if not job.reservation:
        return [("-q", require_word(job.queue, "queue"))] if job.queue else []
    lines: list[Words] = [("-q", require_word(job.reservation, "reservation"))]
    variable = site.option("reservation_variable")
    if variable and job.queue:
        lines.append(("-v", f"{variable}={require_word(job.queue, 'queue')}"))
    return lines


def _write_indices(job: Job, dialect: Dialect) -> str:
    assert job.array is not None
    limit = f"%{job.array.limit}" if job.array.limit else ""
    return write_array(job.array, is_lookup=needs_lookup(job, dialect)) + limit


def _write_dependencies(job: Job) -> str:
    kinds: dict[str, list[str]] = {}
    for dependency in job.dependencies:
        kinds.setdefault(dependency.kind.value, []).append(require_word(dependency.job, "dependencies"))
    return ",".join(":".join([kind, *ids]) for kind, ids in kinds.items())
