# SPDX-License-Identifier: BSD-3-Clause
"""A job's description as options of Slurm: nothing that neither the user nor the site asked for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from kedge.cluster.job import Job, Parallel
from kedge.cluster.schedulers.shell_words import require_word
from kedge.cluster.schedulers.slurm.options import SlurmOption, combine, make_directive, parse_directives
from kedge.cluster.site import Site
from kedge.errors import RequestRefused

_MEBI = 1 << 20
_SIZES = ((1 << 40, "T"), (1 << 30, "G"), (_MEBI, "M"))
_MAIL = {"begin": "BEGIN", "end": "END", "fail": "FAIL"}
# what has no meaning for a job on a terminal, or is not known to salloc
_BATCH_ONLY = ("output", "error", "input", "array", "requeue", "no-requeue", "open-mode", "wrap", "export", "parsable")


def batch_directives(job: Job, site: Site, files: list[SlurmOption]) -> list[SlurmOption]:
    """Everything between the first line of a script and its first command."""
    account = [] if site.account_on_command_line else list(_ask_account(job, site))
    ours = [*_ask_name(job), *account, *_ask_queue(job, job.queue), *_ask_resources(job, site), *_ask_when(job, site)]
    return _settle([*ours, *files], job, site)


def command_line_directives(job: Job, site: Site) -> list[SlurmOption]:
    """What the site takes on the command line of sbatch only."""
    if not site.account_on_command_line:
        return []
    user = [directive for line in job.directives for directive in parse_directives(line)]
    if any(directive.name == "account" for directive in user):  # it stands in the script, where the user wants it
        return []
    return combine(list(_ask_account(job, site)), (), (), (*site.drop_directives, *job.drop_directives))


def interactive_directives(job: Job, site: Site) -> list[SlurmOption]:
    """The options of salloc or srun for the same request."""
    if job.array is not None:
        raise RequestRefused("an array cannot run on a terminal", hint="leave --array out, or use 'kedge submit'")
    queue = job.queue or site.interactive_queue
    ours = [*_ask_name(job), *_ask_account(job, site), *_ask_queue(job, queue), *_ask_resources(job, site)]
    return [
        directive
        for directive in _settle([*ours, *_ask_when(job, site)], job, site)
        if directive.name not in _BATCH_ONLY
    ]


def format_size(size: int) -> str:
    """Bytes as Slurm writes them, in whole units of 1024; what does not fit is rounded up."""
    for unit, letter in _SIZES:
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return f"{-(-size // _MEBI)}M" if size else "0"


def format_time(seconds: int) -> str:
    """`1-02:03:04`, without the days where there are none."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def _settle(ours: list[SlurmOption], job: Job, site: Site) -> list[SlurmOption]:
    return combine(ours, site.directives, job.directives, (*site.drop_directives, *job.drop_directives))


def _ask_name(job: Job) -> Iterator[SlurmOption]:
    if job.name.strip():
        yield make_directive("job-name", job.name)


def _ask_account(job: Job, site: Site) -> Iterator[SlurmOption]:
    account = job.account or site.account
    if account:
        yield make_directive("account", account)


def _ask_queue(job: Job, queue: str) -> Iterator[SlurmOption]:
    for name, value in (("partition", queue), ("qos", job.qos), ("reservation", job.reservation)):
        if value:
            yield make_directive(name, value)


def _ask_resources(job: Job, site: Site) -> Iterator[SlurmOption]:
    if job.nodes is not None or "nodes" in site.requires:
        yield make_directive("nodes", job.node_count)
    yield from _ask_tasks(job, site)
    if job.cpus_per_task is not None:
        yield make_directive("cpus-per-task", job.cpus_per_task)
    yield from _ask_gpus(job, site)
    yield from _ask_memory(job, site)
    if job.time is not None:
        yield make_directive("time", format_time(job.time))
    if job.exclusive and "exclusive" not in site.refuses:
        yield make_directive("exclusive")
    if job.constraint:
        yield make_directive("constraint", job.constraint)


def _ask_tasks(job: Job, site: Site) -> Iterator[SlurmOption]:
    if job.parallel is Parallel.TORCHRUN:
        if job.node_count > 1 or "tasks" in site.requires:  # srun starts one torchrun on each node
            yield make_directive("ntasks-per-node", 1)
        return
    if job.tasks is not None or ("tasks" in site.requires and job.tasks_per_node is None):
        yield make_directive("ntasks", job.task_count)
    if job.tasks_per_node is not None:
        yield make_directive("ntasks-per-node", job.tasks_per_node)


def _ask_gpus(job: Job, site: Site) -> Iterator[SlurmOption]:
    pattern = "--gpus-per-node={type}:{count}" if site.gpu_directive is None else site.gpu_directive
    if not job.wants_gpus or not pattern or "gpus" in site.refuses:
        return
    queue = site.find_queue(job.queue) if job.queue else site.default_queue
    kind = job.gpu_type
    if "{type}" not in pattern:
        pattern = pattern.replace("{count}", "{type}:{count}")
    elif site.gpu_directive is not None and not kind and queue is not None:
        kind = queue.gpu_type
    if not kind:
        pattern = pattern.replace("{type}:", "")
    yield from parse_directives(
        pattern.replace("{type}", require_word(kind, "gpu_type")).replace("{count}", str(job.gpus_per_node))
    )


def _ask_memory(job: Job, site: Site) -> Iterator[SlurmOption]:
    if site.memory_directive == "" or "memory" in site.refuses:
        return
    if job.memory is not None:
        pattern = site.memory_directive or "--mem={size}"
        yield from parse_directives(pattern.replace("{size}", format_size(job.memory)))
    for name, size in (("mem-per-cpu", job.memory_per_cpu), ("mem-per-gpu", job.memory_per_gpu)):
        if size is not None:
            yield make_directive(name, format_size(size))


def _ask_when(job: Job, site: Site) -> Iterator[SlurmOption]:
    if job.array is not None:
        if "arrays" in site.refuses:
            raise RequestRefused(f"{site.name} does not accept job arrays", hint="submit a job for each task")
        yield make_directive("array", job.array)
    if job.dependencies:
        groups = groupby(job.dependencies, key=lambda each: each.kind)
        words = [":".join((kind.value, *(each.job for each in members))) for kind, members in groups]
        yield make_directive("dependency", ",".join(words))
    if job.begin:
        yield make_directive("begin", job.begin)
    if job.mail:
        yield make_directive("mail-user", job.mail)
        yield make_directive("mail-type", ",".join(_MAIL.get(each, each.upper()) for each in job.mail_on) or "END,FAIL")
