# SPDX-License-Identifier: BSD-3-Clause
"""The backend for PBS: scripts for `qsub`, and what `qstat` and `qdel` are asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from kedge.base.duration import format_duration
from kedge.cluster.job import Job
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.backend import Backend, Dialect, Query, ScriptContext
from kedge.cluster.schedulers.exit_text import explain_exit, explain_node, explain_timeout, explain_used_memory
from kedge.cluster.schedulers.pbs import FACTS
from kedge.cluster.schedulers.pbs.status import UNMET, parse_job_status
from kedge.cluster.schedulers.qsub_directives import (
    Grammar,
    Words,
    choose_account,
    fill_gpu_type,
    make_job_name,
    merge_directives,
    read_directive,
    redirect_output,
    write_array,
    write_begin,
    write_directive,
)
from kedge.cluster.schedulers.script_body import needs_lookup, render_body
from kedge.cluster.schedulers.shell_words import require_word
from kedge.cluster.site import Queue, Site
from kedge.errors import RequestRefused, SchedulerFailed

_ID = re.compile(r"^\s*(\d+(?:\[\])?(?:\.[\w.-]+)?)\s*$", re.MULTILINE)
_SUBJOB = re.compile(r"(\d+)\[\](.*)_(\d+)")


class _Pbs:
    """See `kedge.cluster.schedulers.backend.Backend`."""

    name = FACTS.name

    def make_dialect(self, job: Job, place: ScriptContext) -> Dialect:
        """The dialect of one job's script."""
        index = "PBS_ARRAY_INDEX"
        if job.array is not None and not is_scheduler_array(job):
            index = f"{{PBS_ARRAY_INDEX:-{job.array.indices[0]}}}"
        return Dialect(
            submit_word=FACTS.submit,
            job_id="$PBS_ARRAY_ID" if is_scheduler_array(job) else "$PBS_JOBID",
            array_index=index,
            first_node=('read -r first_node <"$PBS_NODEFILE"',),
            launcher="mpirun",
            host_file='"$PBS_NODEFILE"',
            has_array_lists=FACTS.has_array_lists,
            node_shell=(FACTS.node_shell, FACTS.node_file),
            signal_carrier=FACTS.signal_carrier,
            opening=redirect_output(job, place),
        )

    def render(self, job: Job, site: Site, place: ScriptContext) -> str:
        """The script."""
        dialect = self.make_dialect(job, place)
        lines = [*collect_request(job, site), *collect_batch(job, place, dialect)]
        directives = [write_directive(directive, GRAMMAR) for directive in merge_directives(lines, job, site, GRAMMAR)]
        return "\n".join(["#!/bin/bash", *directives, "", render_body(job, site, place, dialect)])

    def submit_argv(self, script: str, job: Job, site: Site) -> list[str]:
        """`qsub` prints the id alone."""
        return ["qsub", *choose_account(job, site, "-A"), script]

    def parse_submit(self, output: str) -> str:
        """`1234.pbs1`, or `1234[].pbs1` for an array; a site's own words may stand around it."""
        found = _ID.findall(output)
        if not found:
            raise SchedulerFailed("qsub printed no job id", context={"said": output[-2000:]})
        return str(found[-1])

    def interactive_argv(self, job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
        """PBS starts a login shell and takes no command: what is to run has to be typed there."""
        del command, has_terminal
        options = merge_directives(collect_request(job, site), job, site, GRAMMAR)
        return ["qsub", "-I", *choose_account(job, site, "-A"), *(word for each in options for word in each)]

    def list_query(self, user: str) -> Query:
        """-u works beside -f only with -w, and that since PBS 18."""
        return Query(("qstat", "-f", "-w", "-t", "-u", user))

    def parse_list(self, output: str) -> list[JobStatus]:
        """Tasks of an array that wait are one entry."""
        return parse_job_status(output)

    def detail_query(self, id: str) -> Query | None:
        """Return the call for one job without -x, which fails for all jobs where no history is kept."""
        return Query(("qstat", "-f", "-w", "-t", id), may_fail=True)

    def parse_detail(self, output: str) -> list[JobStatus]:
        """Empty when it is over."""
        return parse_job_status(output)

    def history_query(self, ids: Sequence[str], since: float) -> Query | None:
        """Return the call for past jobs; it fails when one of them is unknown, and prints the others all the same."""
        del since
        return Query(("qstat", "-x", "-f", "-w", "-t", *ids), may_fail=True)

    def parse_history(self, output: str) -> list[JobStatus]:
        """Parse the history; empty where the server keeps none."""
        return parse_job_status(output, is_history=True)

    def cancel_argv(self, ids: Sequence[str], signal: str = "") -> list[str]:
        """`12[].pbs1_3` is `12[3].pbs1` here."""
        names = [_SUBJOB.sub(r"\1[\3]\2", id) for id in ids]
        return ["qsig", "-s", signal, *names] if signal else ["qdel", *names]

    def explain(self, status: JobStatus) -> str:
        """In a sentence."""
        return explain_status(status)

    def is_stuck(self, status: JobStatus) -> bool:
        """The scheduler's comment says so."""
        return is_stuck(status)


BACKEND: Backend = _Pbs()


# Why a job of PBS waits or how it failed, in sentences with the remedy.

_SHORT = re.compile(
    r"Insufficient amount of (?:queue |server )?resource:? ([\w.]+)(?: \(R: (\S+) A: (\S+) T: ([^)]*)\))?"
)
_CODES = {
    -1: "the node could not start it",
    -2: "the node could not start it",
    -3: "the node could not start it; PBS was to try again",
    -7: "it could not be restarted",
    -10: "the node does not know its user",
    -13: "its user's password was refused",
    -21: "PBS' directories on the node are not secure",
    -23: "it had no Kerberos credentials",
    -24: "it used more CPUs than it requested",
    -25: "it used more CPUs than it requested",
    -28: "it used more CPU time than it requested",
    -30: "not all of its nodes could join the job",
}
_WAITS = (
    ("Not enough free nodes available", "it waits for free nodes"),
    (
        "Not enough total nodes available",
        "it requests more nodes than there are, so it never starts; request fewer",
    ),
    (
        "running job limit",
        "its queue has reached its limit of running jobs; it starts when earlier ones end",
    ),
    ("job limit", "a limit of running jobs is reached; it starts when earlier ones end"),
    ("would exceed", "it would exceed a limit of the user, group or queue; it starts when earlier jobs end"),
    (
        "reservation or top job",
        "it could not complete before a reservation or a job with higher priority starts",
    ),
    ("cannot complete", "it could not complete before its queue or the cluster stops; request a shorter --time"),
    (
        "too many failed attempts",
        "PBS failed too often to start it and holds it; ask the site's support, or cancel it",
    ),
    ("Queue not started", "its queue is stopped; it starts when the queue does"),
    ("exclusive node", "it waits for an exclusive node; all are in use"),
    ("Dependency", "it waits for the jobs that it depends on"),
)

_STUCK = ("Can Never Run", "Not enough total nodes available", "too many failed attempts")


def explain_status(status: JobStatus) -> str:
    """Empty when there is nothing to say."""
    if status.state in (State.QUEUED, State.HELD):
        return _explain_waiting(status)
    return _ENDINGS[status.state](status) if status.state in _ENDINGS else ""


def is_stuck(status: JobStatus) -> bool:
    """Whether a job waits for what cannot happen by itself."""
    is_waiting = status.state in (State.QUEUED, State.HELD)
    return is_waiting and any(words in status.reason for words in _STUCK)


def _explain_waiting(status: JobStatus) -> str:
    comment = status.reason.strip()
    is_never = comment.startswith("Can Never Run")
    short = _SHORT.search(comment)
    if short:
        return _explain_shortage(short, is_never=is_never)
    known = next((sentence for mark, sentence in _WAITS if mark in comment), "")
    if is_never:
        return f"it can never run: {comment.partition(':')[2].strip()}; cancel it and change the request"
    if known:
        return known
    if status.state is State.HELD:
        why = f" ({comment})" if comment else ""
        return f"it is held{why}; release it with 'qrls {status.id}', unless another job or an operator holds it"
    if status.raw.startswith("W"):
        return "its start time is not reached, or its files are being staged in"
    return f"it waits: {comment.removeprefix('Not Running:').strip()}" if comment else ""


def _explain_shortage(match: re.Match[str], *, is_never: bool) -> str:
    resource, wanted, free, total = match.groups()
    figures = f": {wanted} requested, {free} free, {total} in total" if wanted else ""
    if is_never:
        return f"it requests more {resource} than there is{figures}; it can never run: cancel it and request less"
    return f"it waits until enough {resource} is free{figures}"


def _explain_failure(status: JobStatus) -> str:
    code = re.search(r"-\d+$", status.raw)
    if code:
        why = _CODES.get(int(code[0]), "PBS or one of its hooks killed it")
        return f"PBS exit status {code[0]}: {why}" + (f"; its comment: {status.reason}" if status.reason else "")
    return explain_exit(status)


def _explain_cancelled(status: JobStatus) -> str:
    if status.reason == UNMET:
        return UNMET
    return "it was deleted while it ran" if status.started else "it was deleted before it started"


def _explain_unknown(status: JobStatus) -> str:
    if status.raw.startswith("M"):
        return "it was moved to another PBS server; ask 'qstat' there"
    return ""


_ENDINGS: dict[State, Callable[[JobStatus], str]] = {
    State.FAILED: _explain_failure,
    State.CANCELLED: _explain_cancelled,
    State.TIMEOUT: explain_timeout,
    State.OUT_OF_MEMORY: partial(explain_used_memory, detail="resources_used.mem"),
    State.NODE_FAILED: explain_node,
    State.UNKNOWN: _explain_unknown,
}


# What a job asks for in PBS's words: chunks of nodes, and the rest of qsub(1B).

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
