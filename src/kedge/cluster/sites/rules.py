# SPDX-License-Identifier: BSD-3-Clause
"""What one queue of a site can serve: each rule looks at a request, says what is wrong with it, and mends it.

A mended request may break another rule; `sites.checks` goes on until none is broken.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from kedge.base.duration import shorten_duration
from kedge.base.frozen import NOTHING, frozen, replace
from kedge.cluster.job import Job
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.site import Queue, Site, expand_path

_SOME_ACCOUNT = "PROJECT"  # stands for the one only the user knows
_HOUR = 3600
_MODEL = r"(gh|gb|rtxa?|gtx|mi|[abhklptv])[0-9]{1,4}[a-z]{0,2}"  # a100, l4, gh200, rtx6000, mi250x
# How far a mended request is from what was asked for: the nearest one has the smallest sum.
_SAME, _NEAR, _LESS, _FAR = 1, 4, 20, 60


@frozen
class QueueRequest:
    """A job as one queue sees it."""

    job: Job
    site: Site
    queue: Queue
    is_interactive: bool = False
    environ: Mapping[str, str] = NOTHING
    paths: tuple[str, ...] = ()  # absolute: what compute nodes have to see
    architecture: str = ""  # the image's, where it is known

    @property
    def most_nodes(self) -> int | None:
        """The nodes one job can have."""
        if self._is_reserved:
            return None
        limits = [self.queue.max_nodes, self.queue.nodes]
        if self.is_interactive:
            limits.append(self.queue.max_interactive_nodes)
        known = [each for each in limits if each]
        return min(known) if known else None

    @property
    def longest(self) -> int | None:
        """The seconds one job can have."""
        if self._is_reserved:
            return None
        if self.is_interactive and self.queue.max_interactive_time:
            return self.queue.max_interactive_time
        return self.queue.max_time

    @property
    def _is_reserved(self) -> bool:
        """Where a reservation is a queue of its own, no profile knows its limits."""
        return bool(self.job.reservation) and bool(find_facts(self.site.scheduler).reservation_queue)

    @property
    def place(self) -> str:
        """What sentences call it."""
        return f"{self.queue.name} at {self.site.name}" if self.queue.name else self.site.name


@frozen
class UnmetRequest:
    """Something that cannot be served; `better` is the request without it, None where the queue is no use at all."""

    reason: str
    better: Job | None
    cost: int
    limit: str = ""  # which limit of the queue it breaks: gpus, gpu_type, needs_gpus, nodes, cpus, memory or time


def _check_use(request: QueueRequest) -> UnmetRequest | None:
    """The queue is for such jobs at all."""
    queue = request.queue
    if request.is_interactive and not queue.is_interactive:
        return UnmetRequest(f"{request.place} does not accept interactive jobs", None, _FAR)
    if queue.arch and request.architecture and queue.arch != request.architecture:
        return UnmetRequest(
            f"{request.place} has {queue.arch} nodes, but the image is for {request.architecture}", None, _FAR
        )
    return None


def _check_account(request: QueueRequest) -> UnmetRequest | None:
    """An account is named where jobs need one."""
    if "account" in request.site.requires and not (request.job.account or request.site.account):
        return UnmetRequest(f"{request.site.name} needs an account", replace(request.job, account=_SOME_ACCOUNT), 0)
    return None


def _check_gpus(request: QueueRequest) -> UnmetRequest | None:
    """There are as many GPUs, of that kind."""
    job, queue = request.job, request.queue
    wanted, there = job.gpus_per_node or 0, queue.gpus_per_node
    if wanted and there == 0:
        better = replace(job, gpus_per_node=None, gpu_type="", memory_per_gpu=None)
        return UnmetRequest(f"{request.place} has no GPUs", better, _FAR, "gpus")
    if not wanted and queue.needs_gpus:
        cost = _SAME if job.queue == queue.name else _NEAR  # who names such a queue wants its GPUs
        return UnmetRequest(
            f"jobs without GPUs never start in {request.place}", replace(job, gpus_per_node=1), cost, "needs_gpus"
        )
    if there is not None and wanted > there:
        reason = f"{request.place} has {_count(there, 'GPU')} per node; {wanted} were requested"
        return UnmetRequest(reason, *_spread_gpus(request, wanted * job.node_count, there), "gpus")
    if queue.max_gpus and wanted * job.node_count > queue.max_gpus:
        reason = (
            f"{request.place} allows at most {queue.max_gpus} GPUs per job; {wanted * job.node_count} were requested"
        )
        nodes = min(job.node_count, queue.max_gpus)
        mended = replace(job, nodes=nodes, gpus_per_node=queue.max_gpus // nodes)
        return UnmetRequest(reason, mended, _lose(wanted * job.node_count, queue.max_gpus), "gpus")
    return _check_gpu_type(request)


def _check_gpu_type(request: QueueRequest) -> UnmetRequest | None:
    """The queue has GPUs of that type, by the scheduler's words for them; by their model where those are unknown."""
    job, queue = request.job, request.queue
    types = queue.known_gpu_types
    if not job.gpu_type or queue.spell_gpu_type(job.gpu_type) in types:
        return None
    if not types and not (queue.gpu and _is_other_model(job.gpu_type, queue.gpu)):
        return None
    reason = f"the GPUs of {request.place} are {' and '.join(types) or queue.gpu}; {job.gpu_type} was requested"
    return UnmetRequest(reason, replace(job, gpu_type=types[0] if types else ""), _LESS, "gpu_type")


def _is_other_model(word: str, model: str) -> bool:
    """Whether a word such as `h100` or `nvidia_h100_80gb` names a model that `A100-SXM4-40GB` is not."""
    named = next((each for each in re.split(r"[^a-z0-9]+", word.lower()) if re.fullmatch(_MODEL, each)), "")
    return bool(named) and named not in re.sub(r"[^a-z0-9]", "", model.lower())


def _spread_gpus(request: QueueRequest, total: int, there: int) -> tuple[Job, int]:
    """Spread GPUs: as many on more nodes, or as many as there are."""
    nodes = -(-total // there)
    most = request.most_nodes
    if most is not None and nodes > most:
        return replace(request.job, nodes=most, gpus_per_node=there), _lose(total, most * there)
    return replace(request.job, nodes=nodes, gpus_per_node=-(-total // nodes)), _SAME


def check_nodes(request: QueueRequest) -> UnmetRequest | None:
    """Not more nodes than one job can have, and not fewer."""
    wanted, most, least = request.job.node_count, request.most_nodes, request.queue.min_nodes
    if most is not None and wanted > most:
        reason = f"{request.place} allows at most {_count(most, 'node')} per job; {wanted} were requested"
        return UnmetRequest(reason, replace(request.job, nodes=most), _lose(wanted, most), "nodes")
    if least and wanted < least:
        reason = f"{request.place} requires at least {least} nodes; {_count(wanted, 'node')} requested"
        return UnmetRequest(reason, replace(request.job, nodes=least), _LESS, "nodes")
    return None


def _check_cpus(request: QueueRequest) -> UnmetRequest | None:
    """The tasks of a node fit on its CPUs."""
    job, there = request.job, request.queue.cpus_per_node
    if there is None:
        return None
    each = job.cpus_per_task or 1
    if each > there:
        reason = f"a node of {request.place} has {_count(there, 'CPU')}; {each} were requested for each task"
        return UnmetRequest(reason, replace(job, cpus_per_task=there), _NEAR, "cpus")
    if job.tasks_on_node * each <= there:
        return None
    reason = f"a node of {request.place} has {_count(there, 'CPU')}; {job.tasks_on_node * each} are needed"
    fit, total = there // each, job.task_count
    per_node = fit if job.tasks_per_node else None
    nodes, most = max(-(-total // fit), job.node_count), request.most_nodes
    if most is None or nodes <= most:
        return UnmetRequest(reason, replace(job, nodes=nodes, tasks_per_node=per_node), _SAME, "cpus")
    tasks = fit * most if job.tasks else None
    return UnmetRequest(
        reason, replace(job, nodes=most, tasks=tasks, tasks_per_node=per_node), _lose(total, fit * most), "cpus"
    )


def spread_tasks(request: QueueRequest) -> Job:
    """The job on as many nodes as its tasks need, where it says how many tasks and not on how many nodes."""
    job, there = request.job, request.queue.cpus_per_node
    if job.nodes is not None or not job.tasks or job.tasks_per_node or not there:
        return job
    nodes = -(-job.tasks // max(there // (job.cpus_per_task or 1), 1))
    return replace(job, nodes=nodes) if nodes > 1 else job


def check_memory(request: QueueRequest) -> UnmetRequest | None:
    """Memory may be asked for, is where it must be, and is there."""
    job, there = request.job, request.queue.memory_per_node
    wanted = count_memory(job)
    without = replace(job, memory=None, memory_per_cpu=None, memory_per_gpu=None)
    if "memory" in request.site.refuses and wanted and there is None:
        return UnmetRequest(f"{request.site.name} does not accept memory requests", without, _SAME)
    if there is not None and wanted > there:
        from kedge.cluster.memory import shorten_memory  # late: few requests come to it

        shown = f"{shorten_memory(there)} of memory; {shorten_memory(wanted)} were requested"
        return UnmetRequest(
            f"a node of {request.place} has {shown}", replace(without, memory=there), _lose(wanted, there), "memory"
        )
    if "memory" in request.site.requires and not wanted:
        usual = min(there or 1 << 32, 1 << 32)
        return UnmetRequest(f"{request.site.name} requires a memory request", replace(job, memory=usual), 0)
    return None


def count_memory(job: Job) -> int:
    """Bytes on one node, however they were asked for."""
    if job.memory:
        return job.memory
    if job.memory_per_cpu:
        return job.memory_per_cpu * job.tasks_on_node * (job.cpus_per_task or 1)
    return (job.memory_per_gpu or 0) * (job.gpus_per_node or 0)


def _check_time(request: QueueRequest) -> UnmetRequest | None:
    """Not longer than a job may be, and said where it must be."""
    job, longest = request.job, request.longest
    if job.time is None:
        if "time" not in request.site.requires or request.queue.default_time:
            return None
        better = replace(job, time=min(longest or _HOUR, _HOUR))
        return UnmetRequest(f"{request.place} requires a time limit", better, 0)
    if longest is not None and job.time > longest:
        kind = "an interactive job" if request.is_interactive else "a job"
        shown = f"{shorten_duration(longest)}; {shorten_duration(job.time)} was requested"
        return UnmetRequest(
            f"{kind} in {request.place} can run for at most {shown}",
            replace(job, time=longest),
            _lose(job.time, longest),
            "time",
        )
    return None


def check_refused(request: QueueRequest) -> UnmetRequest | None:
    """Return what is asked for that the site does not do, if anything."""
    job, site = request.job, request.site
    if job.array is not None and "arrays" in site.refuses:
        return UnmetRequest(f"{site.name} does not accept job arrays", replace(job, array=None), _LESS)
    if job.exclusive and "exclusive" in site.refuses and not request.queue.is_whole_node:
        return UnmetRequest(f"{site.name} does not give whole nodes to one job", replace(job, exclusive=False), _NEAR)
    if "gpus" in site.refuses and job.wants_gpus and request.queue.gpus_per_node is None:
        better = replace(job, gpus_per_node=None, gpu_type="", memory_per_gpu=None)
        return UnmetRequest(
            f"{site.name} does not accept GPU requests, and the number of GPUs in {request.place} is unknown",
            better,
            _FAR,
        )
    return None


def check_paths(request: QueueRequest) -> UnmetRequest | None:
    """Compute nodes see the files of the job. Not one of RULES: `paths` stay as they are when the job is mended."""
    roots = {path: find_hidden_root(path, request.site, request.environ) for path in request.paths}
    hidden = {path: root for path, root in roots.items() if root is not None}
    if not hidden:
        return None
    reason = f"compute nodes of {request.site.name} do not see {', '.join(hidden)}"
    scratch = expand_path(request.site.scratch, request.environ)
    if not scratch:
        return UnmetRequest(reason, None, _FAR)
    job = request.job
    for path, root in hidden.items():
        below = posixpath.relpath(posixpath.normpath(path), posixpath.normpath(root))
        job = _move(job, path, posixpath.normpath(posixpath.join(scratch, below)))
    return UnmetRequest(reason, job, _SAME)


def _move(job: Job, path: str, moved: str) -> Job:
    """The job with what lies at `path` somewhere else; its directory, where nothing in the job names it."""

    def is_named(text: str) -> bool:
        return bool(text) and (text == path or path.endswith("/" + text.removeprefix("./")))

    if is_named(job.image):
        return replace(job, image=moved)
    if is_named(job.directory):
        return replace(job, directory=moved)
    if is_named(job.output):
        return replace(job, output=moved)
    if is_named(job.error):
        return replace(job, error=moved)
    is_here = posixpath.normpath(job.directory) == "."  # not given, or a name for where the user stands
    return replace(job, directory=moved) if is_here else job


def find_hidden_root(path: str, site: Site, environ: Mapping[str, str]) -> str | None:
    """The directory that hides `path` from compute nodes, None where they see it."""
    path = posixpath.normpath(path)
    scratch = expand_path(site.scratch, environ)
    if not path.startswith("/") or (scratch and _is_below(path, scratch)):
        return None
    home = [] if site.home_on_nodes else [environ.get("HOME", "")]
    roots = [*home, *(expand_path(each, environ) for each in site.hidden_paths)]
    return next((root for root in roots if root.startswith("/") and _is_below(path, root)), None)


def _is_below(path: str, folder: str) -> bool:
    folder = posixpath.normpath(folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _lose(before: int, after: int) -> int:
    """The cost of getting less than was asked for: the more is lost, the more."""
    return _LESS + round(_LESS * (1 - after / before))


RULES: tuple[Callable[[QueueRequest], UnmetRequest | None], ...] = (
    _check_use,
    _check_gpus,
    check_nodes,
    _check_cpus,
    check_memory,
    _check_time,
    check_refused,
    _check_account,
)


def find_broken_limits(request: QueueRequest) -> list[UnmetRequest]:
    """Return what is more, or less, than the queue gives a job; for scripts, which are judged and not mended."""
    request = replace(request, job=spread_tasks(request))
    return [finding for rule in RULES if (finding := rule(request)) is not None and finding.limit]


def _count(number: int, thing: str) -> str:
    from kedge.base.counting import count_things  # late: only a refusal counts things

    return count_things(number, thing)
