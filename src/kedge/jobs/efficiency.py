# SPDX-License-Identifier: BSD-3-Clause
"""What jobs requested, what they used, and the request that would have been enough.

Two sources: the record that a job left of its run, and the scheduler's accounts. Where both know a figure the larger
one counts, so that no proposal is too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from kedge.base.duration import shorten_duration
from kedge.base.frozen import JsonValue, frozen, replace
from kedge.cluster.job import Job, Parallel
from kedge.cluster.job_state import JobStatus, JobUsage, State
from kedge.cluster.memory import shorten_memory
from kedge.cluster.schedulers.choose import find_usage_reader
from kedge.errors import FileProblem, InvalidJob, SchedulerFailed
from kedge.jobs.cluster import Cluster
from kedge.jobs.encoding import decode_job
from kedge.jobs.records import Record
from kedge.jobs.runs.run_record import read_run_record
from kedge.jobs.status import JobView

_TIME_MARGIN, _MEMORY_MARGIN, _CPU_MARGIN = 1.25, 1.2, 1.1
_IDLE_GPU = 1  # per cent of load that nobody needs a GPU for
_GIBIBYTE = 1 << 30
T = TypeVar("T", int, float)
_LEAST_TIME = 300  # seconds; less saves nothing
_ABSURD = 1e24
_RECORD, _ACCOUNTS = "record", "accounts"


@frozen
class JobEfficiency(JsonValue):
    """One job or task that has run; None is unknown."""

    id: str
    name: str
    state: str
    seconds: float | None = None
    time_limit: int | None = None
    cpus: int | None = None
    cpu_seconds: float | None = None
    memory: int | None = None  # of the fullest node
    memory_asked: int | None = None
    gpus: int | None = None
    gpus_used: int | None = None  # that ran anything
    gpu_load: float | None = None  # per cent, the mean of all
    gpu_memory: float | None = None  # per cent of the fullest
    enough: tuple[str, ...] = ()  # options of submit
    sources: tuple[str, ...] = ()

    @property
    def cpu_load(self) -> float | None:
        """Per cent of its CPUs that it kept busy."""
        if not self.seconds or not self.cpus or self.cpu_seconds is None:
            return None
        return 100 * self.cpu_seconds / (self.seconds * self.cpus)


def measure_jobs(cluster: Cluster, views: Sequence[JobView]) -> list[JobEfficiency]:
    """Measure all jobs that have ended and ran; the accounts are asked once."""
    over = [view for view in views if view.status.state.is_over and view.status.started]
    accounts = _ask_accounts(cluster, [view.status for view in over])
    found = []
    for view in over:
        record = _read(cluster, view)
        run = read_run_record(record, view.status.index) if record else None
        found.append(judge_job(view.status, _decode(record), run, accounts.get(view.status.shown_id)))
    return found


def _ask_accounts(cluster: Cluster, statuses: Sequence[JobStatus]) -> Mapping[str, JobUsage]:
    reader = find_usage_reader(cluster.backend.name) if statuses else None
    if reader is None:
        return {}
    since = min(status.submitted or status.started or 0.0 for status in statuses) - 3600
    try:
        output = cluster.ask(reader.usage_query(list(dict.fromkeys(status.id for status in statuses)), since))
    except SchedulerFailed:
        return {}  # records may know
    return reader.parse_usage(output) if output else {}


def _read(cluster: Cluster, view: JobView) -> Record | None:
    try:
        return cluster.records.read(view.key, view.status.id) if view.key else None
    except FileProblem:
        return None


def _decode(record: Record | None) -> Job:
    try:
        return decode_job(record.job) if record else Job()
    except InvalidJob:
        return Job()


def judge_job(status: JobStatus, job: Job, run: Mapping[str, Any] | None, usage: JobUsage | None) -> JobEfficiency:
    """Put together what all sources know of one job. Pure."""
    used, told = _Run(run or {}), usage or JobUsage()
    lasted = status.ended - status.started if status.started and status.ended else None
    cpus = told.cpus or _count_cpus(job) or used.cpus
    measured = JobEfficiency(
        status.shown_id,
        status.name,
        status.state.word,
        seconds=_most(told.seconds, lasted) or used.seconds,
        time_limit=job.time or status.time_limit,
        cpus=cpus,
        cpu_seconds=_most(told.cpu_seconds, used.cpu_seconds),
        memory=_most(told.memory, used.memory),
        memory_asked=_find_memory(job, cpus) or told.memory_asked,
        gpus=(job.gpus_per_node or 0) * job.node_count or told.gpus,
        gpus_used=used.gpus_used if job.node_count == 1 else None,
        gpu_load=used.gpu_load,
        gpu_memory=used.gpu_memory,
        sources=tuple(name for name, source in ((_RECORD, run), (_ACCOUNTS, usage)) if source),
    )
    return _add_proposal(measured, status, job)


class _Run:
    """The figures of a record; one that somebody changed may hold anything."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        is_launch = record.get("verb") == "launch"  # its ranks are not the recorder's children
        used = record.get("usage", {})
        self.seconds = _number(record.get("times", {}).get("seconds"))
        self.cpus = _whole(record.get("host", {}).get("cpus"))
        self.cpu_seconds = None if is_launch else _number(used.get("cpu_seconds"))
        self.memory = None if is_launch else _whole(used.get("memory_peak")) or _whole(used.get("largest_process"))
        gpus = record.get("gpus")
        self._gpus = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
        loads = [load for gpu in self._gpus if (load := _number(gpu.get("utilisation_mean"))) is not None]
        self.gpu_load = round(sum(loads) / len(loads), 1) if loads else None

    @property
    def gpus_used(self) -> int | None:
        """How many ran anything; None where one does not tell."""
        peaks = [_number(gpu.get("utilisation_peak")) for gpu in self._gpus]
        if not peaks or None in peaks:
            return None
        return sum(peak is not None and peak > _IDLE_GPU for peak in peaks)

    @property
    def gpu_memory(self) -> float | None:
        """Per cent of the fullest one's memory."""
        pairs = [(_number(gpu.get("memory_peak")), _number(gpu.get("memory"))) for gpu in self._gpus]
        shares = [100 * used / size for used, size in pairs if used is not None and size]
        return round(max(shares), 1) if shares else None


def _add_proposal(found: JobEfficiency, status: JobStatus, job: Job) -> JobEfficiency:
    """The smaller request; nothing for a job that failed, because a whole run may need more."""
    if status.state is not State.DONE:
        return found
    words = [*_propose_time(found), *_propose_memory(found, job), *_propose_cpus(found, job), *_propose_gpus(found)]
    return replace(found, enough=tuple(words))


def _propose_time(found: JobEfficiency) -> list[str]:
    if not found.seconds or not found.time_limit:
        return []
    step = 60 if found.seconds < 1800 else 900
    wanted = math.ceil(max(found.seconds * _TIME_MARGIN, _LEAST_TIME) / step) * step
    return ["--time", shorten_duration(wanted)] if wanted < found.time_limit else []


def _propose_memory(found: JobEfficiency, job: Job) -> list[str]:
    if not found.memory or not found.memory_asked or job.memory_per_gpu or job.memory_per_cpu:
        return []
    step = _GIBIBYTE if found.memory > 4 * _GIBIBYTE else _GIBIBYTE // 4
    wanted = math.ceil(found.memory * _MEMORY_MARGIN / step) * step
    return ["--mem", shorten_memory(wanted)] if wanted < found.memory_asked else []


def _propose_cpus(found: JobEfficiency, job: Job) -> list[str]:
    if not found.seconds or not found.cpu_seconds or not job.cpus_per_task or job.parallel is not Parallel.SINGLE:
        return []
    wanted = max(math.ceil(found.cpu_seconds / found.seconds * _CPU_MARGIN), 1)
    return ["--cpus-per-task", str(wanted)] if wanted < job.cpus_per_task else []


def _propose_gpus(found: JobEfficiency) -> list[str]:
    if not found.gpus or not found.gpus_used or found.gpus_used >= found.gpus:
        return []
    return ["--gpus", str(found.gpus_used)]


def _count_cpus(job: Job) -> int | None:
    return job.cpus_per_task * job.task_count if job.cpus_per_task else None


def _find_memory(job: Job, cpus: int | None) -> int | None:
    """Return the memory that was requested for one node."""
    if job.memory_per_cpu and cpus:
        return job.memory_per_cpu * (cpus // job.node_count)
    if job.memory_per_gpu and job.gpus_per_node:
        return job.memory_per_gpu * job.gpus_per_node
    return job.memory


def _most(first: T | None, second: T | None) -> T | None:
    known = [each for each in (first, second) if each is not None]
    return max(known) if known else None


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < _ABSURD else None  # no NaN, and no number that cannot be a float


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number else None
