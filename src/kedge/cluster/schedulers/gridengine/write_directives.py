# SPDX-License-Identifier: BSD-3-Clause
"""What a job asks for in Grid Engine's words: slots of parallel environments, resources, and the rest of qsub(1)."""

from __future__ import annotations

import re

from kedge.base.duration import format_duration
from kedge.cluster.job import DependencyKind, Job
from kedge.cluster.output_pattern import make_file_name, split_pattern
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

GRAMMAR = Grammar(title="Grid Engine", prefix="#$", keyed=("-l", "-v"), is_attached=False)

_NAME_LIMIT = 128
_MEGABYTE = 1 << 20
_MAIL = {"begin": "b", "end": "e", "fail": "a"}
_UNSAYABLE = re.compile(r"[,\"'\\$\x00-\x1f\x7f]")  # a list of files, quotes that vanish, variables
_TRUE = ("1", "true", "yes", "on")


def find_queue(job: Job, site: Site) -> Queue | None:
    """The queue or resource type of the site's profile that the job goes to."""
    return site.find_queue(job.queue) if job.queue else site.default_queue


def collect_request(job: Job, site: Site) -> list[Words]:
    """Directives that say how much, whose, where and when; the same for scripts and for `qrsh`."""
    queue = find_queue(job, site)
    lines: list[Words] = [("-N", make_job_name(job.name, _NAME_LIMIT))]
    if job.time:
        lines.append(("-l", f"h_rt={format_duration(job.time)}"))
    if queue is not None and queue.resource:
        lines.append(("-l", f"{queue.resource}={job.node_count}"))
    else:
        lines += _ask_slots(job, site, queue)
        lines += _ask_gpus(job, site, queue)
        lines += _ask_memory(job, site)
        if job.queue:
            lines.append(("-q", require_word(job.queue, "queue")))
    lines += _ask_exclusive(job, site)
    if job.constraint:
        lines.append(("-l", require_word(job.constraint, "constraint")))
    if job.qos:
        raise RequestRefused(
            "Grid Engine has no qualities of service",
            context={"key": "qos"},
            hint="leave out --qos; projects are given with --account",
        )
    account = job.account or site.account
    if account and not site.account_on_command_line:
        lines.append((site.account_option or "-P", require_word(account, "account")))
    if job.reservation:
        lines.append(("-ar", require_word(job.reservation, "reservation")))
    return lines


def collect_batch(job: Job, place: ScriptContext, dialect: Dialect) -> list[Words]:
    """Directives that only a script has: its files, array, dependencies, mail."""
    # Grid Engine replaces $JOB_ID and the like in the name of a directory too; the script goes there by itself
    folder = ("-wd", "/") if _UNSAYABLE.search(place.directory) else ("-cwd",)
    lines: list[Words] = [("-S", "/bin/bash"), folder]
    if not place.error:
        lines.append(("-j", "y"))
    if dialect.opening:
        lines += [("-o", "/dev/null"), *([("-e", "/dev/null")] if place.error else [])]
    else:
        lines.append(("-o", _write_path(job, place.output)))
        lines += [("-e", _write_path(job, place.error))] if place.error else []
    if job.array is not None:
        lines.append(("-t", write_array(job.array, is_lookup=needs_lookup(job, dialect))))
        lines += [("-tc", str(job.array.limit))] if job.array.limit else []
    if job.dependencies:
        lines.append(("-hold_jid", ",".join(_find_dependencies(job))))
    if job.begin:
        lines.append(("-a", write_begin(job.begin)))
    if job.mail:
        when = "".join(_MAIL[word] for word in job.mail_on if word in _MAIL) or "ea"
        lines += [("-M", require_word(job.mail, "mail")), ("-m", when)]
    return lines


def needs_redirection(job: Job, place: ScriptContext, dialect: Dialect) -> bool:
    """Whether the script must open its files itself: their names cannot be said, or have an index it looks up."""
    patterns = [place.output, place.error]
    if job.array is not None and needs_lookup(job, dialect) and any("{index}" in pattern for pattern in patterns):
        return True
    filled = [pattern.replace("{name}", make_file_name(job.name)) for pattern in patterns]
    return any(_UNSAYABLE.search(pattern) for pattern in filled)


def _slots_per_node(job: Job) -> int:
    """A slot is a processor."""
    return job.tasks_on_node * (job.cpus_per_task or 1)


def _ask_slots(job: Job, site: Site, queue: Queue | None) -> list[Words]:
    slots, nodes = _slots_per_node(job), job.node_count
    if slots * nodes == 1:
        return []
    pattern = queue.parallel_environment if queue is not None else ""
    if nodes == 1:
        pattern = site.option("smp_environment") or pattern or "smp"
    else:
        pattern = pattern or site.option("mpi_environment")
    if not pattern:
        raise RequestRefused(
            f"kedge does not know a parallel environment for {nodes} nodes at the site '{site.name}'",
            hint="'qconf -spl' lists them; put one that gives a fixed number of slots per node into the profile, as"
            " options.mpi_environment = 'mpi-{tasks}' ({tasks} becomes the slots per node), or give --nodes 1",
        )
    name = pattern.replace("{tasks}", str(slots)).replace("{nodes}", str(nodes))
    return [("-pe", name, str(slots * nodes)), ("-R", "y")]


def _ask_gpus(job: Job, site: Site, queue: Queue | None) -> list[Words]:
    if not job.gpus_per_node or site.gpu_directive == "" or (queue is not None and queue.is_whole_node):
        return []
    pattern = "-l gpu={count}" if site.gpu_directive is None else site.gpu_directive
    pattern = fill_gpu_type(pattern, job, site, queue, example="-l gpu={count},gpu_type={type}")
    count = job.gpus_per_node
    if site.option("gpu_per_slot").lower() in _TRUE:
        count = _share_gpus(count, _slots_per_node(job), site)
    return read_directive(pattern.replace("{count}", str(count)), GRAMMAR)


def _share_gpus(count: int, slots: int, site: Site) -> int:
    """GPUs of a node by its slots, where the scheduler multiplies them again."""
    if count % slots == 0:
        return count // slots
    nearest = max(each for each in range(1, count + 1) if count % each == 0 and each <= slots)
    raise RequestRefused(
        f"GPUs are counted per slot at the site '{site.name}', and {count} of them cannot be shared by {slots} slots",
        hint=f"ask for {nearest} tasks (or CPUs) per node, or for {slots} GPUs",
    )


def _ask_memory(job: Job, site: Site) -> list[Words]:
    if site.memory_directive == "":
        return []
    is_per_slot = site.option("memory_per_slot", "yes").lower() in _TRUE
    slots = _slots_per_node(job)
    whole = job.memory or (job.memory_per_gpu or 0) * (job.gpus_per_node or 0) or (job.memory_per_cpu or 0) * slots
    if not whole:
        return []
    amount = -(-whole // (slots if is_per_slot else 1))
    size = f"{-(-amount // _MEGABYTE)}M"
    pattern = site.memory_directive or f"-l {site.option('memory_resource', 'h_vmem')}={{size}}"
    return read_directive(pattern.replace("{size}", size), GRAMMAR)


def _ask_exclusive(job: Job, site: Site) -> list[Words]:
    if not job.exclusive:
        return []
    words = site.option("exclusive")
    if not words:
        raise RequestRefused(
            f"kedge does not know how whole nodes are asked for at the site '{site.name}'",
            hint="leave out --exclusive, or put it into the profile: options.exclusive = '-l exclusive=true'",
        )
    return read_directive(words, GRAMMAR)


def _find_dependencies(job: Job) -> list[str]:
    for dependency in job.dependencies:
        if dependency.kind is DependencyKind.AFTER:
            raise RequestRefused(
                "Grid Engine can wait for the end of a job, not for its begin",
                hint=f"use --after afterany:{dependency.job}",
            )
        if dependency.kind is not DependencyKind.AFTER_ANY and not dependency.record:
            raise RequestRefused(
                f"Grid Engine waits for any end of a job, and how job {dependency.job} ends kedge cannot see",
                hint=f"use --after afterany:{dependency.job}, or submit that job with kedge too",
            )
    return [require_word(dependency.job, "dependencies") for dependency in job.dependencies]


def _write_path(job: Job, pattern: str) -> str:
    """A file as -o takes it; the colon before it says that no other colon ends the name of a host."""
    index = "$TASK_ID" if job.array else ""
    values = {"{name}": make_file_name(job.name), "{id}": "$JOB_ID", "{index}": index}
    path = "".join(values.get(part, part) for part in split_pattern(pattern))
    return f":{path}" if ":" in path else path
