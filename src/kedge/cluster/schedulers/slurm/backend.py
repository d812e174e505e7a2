# SPDX-License-Identifier: BSD-3-Clause
"""The backend for Slurm. Each verb loads what it needs of it only, which its start pays for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from kedge.base.patterns import late_pattern
from kedge.cluster.job import Job, Parallel
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.output_pattern import make_file_name, split_pattern
from kedge.cluster.schedulers.backend import Backend, Dialect, Query, ScriptContext
from kedge.cluster.schedulers.exit_text import explain_code, explain_exit, explain_memory, explain_node, explain_timeout
from kedge.cluster.schedulers.script_body import render_body
from kedge.cluster.schedulers.shell_words import require_word
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.schedulers.slurm.accounts import EITHER_CODE
from kedge.cluster.schedulers.slurm.listing import split_indices
from kedge.cluster.schedulers.slurm.options import SlurmOption, combine, find_name, make_directive, parse_directives
from kedge.cluster.schedulers.slurm.reasons import explain_waiting
from kedge.cluster.schedulers.slurm.values import (
    TIME_ENVIRONMENT,
    read_duration,
    read_exit,
    read_state,
    read_text,
    read_time,
)
from kedge.cluster.site import Site
from kedge.errors import RequestRefused, SchedulerFailed


class _Slurm:
    name = FACTS.name

    def render(self, job: Job, site: Site, place: ScriptContext) -> str:

        return render(job, site, place)

    def submit_argv(self, script: str, job: Job, site: Site) -> list[str]:

        return submit_argv(script, job, site)

    def parse_submit(self, output: str) -> str:

        return parse_submit(output)

    def interactive_argv(self, job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:

        return interactive_argv(job, site, command, has_terminal=has_terminal)

    def list_query(self, user: str) -> Query:
        from kedge.cluster.schedulers.slurm.listing import list_query

        return list_query(user)

    def parse_list(self, output: str) -> list[JobStatus]:
        from kedge.cluster.schedulers.slurm.listing import parse_list

        return parse_list(output)

    def detail_query(self, id: str) -> Query:

        return detail_query(id)

    def parse_detail(self, output: str) -> list[JobStatus]:

        return parse_detail(output)

    def history_query(self, ids: Sequence[str], since: float) -> Query:
        from kedge.cluster.schedulers.slurm.accounts import history_query

        return history_query(ids, since)

    def parse_history(self, output: str) -> list[JobStatus]:
        from kedge.cluster.schedulers.slurm.accounts import parse_history

        return parse_history(output)

    def cancel_argv(self, ids: Sequence[str], signal: str = "") -> list[str]:
        # a signal is for the script's own children too, not only for what srun started
        return ["scancel", *([f"--signal={signal}", "--full"] if signal else []), *ids]

    def explain(self, status: JobStatus) -> str:

        return explain(status)

    def is_stuck(self, status: JobStatus) -> bool:
        from kedge.cluster.schedulers.slurm.reasons import is_stuck

        return is_stuck(status)


BACKEND: Backend = _Slurm()


# Everything the controller knows of one job: `scontrol --oneliner show job`.

# A name holds anything; it ends where the only words follow that stand behind every name.
_NAME = re.compile(r" JobName=(.*?) UserId=([^\s(]+)\(\d+\) GroupId=", re.DOTALL)
_FIELD = re.compile(r" ([A-Z][A-Za-z]*(?:[/:][A-Za-z:]+)?)=")
_ABSENT = ("Invalid job id", "not found", "No jobs in the system")
_DETAILS = (
    ("Dependency", "waits for"), ("Account", "account"), ("QOS", "qos"), ("NumNodes", "nodes"), ("NumTasks", "tasks"),
    ("CPUs/Task", "CPUs per task"), ("TresPerNode", "per node"), ("ReqTRES", "asked for"), ("TRES", "resources"),
    ("AllocTRES", "got"), ("Features", "constraint"), ("Reservation", "reservation"), ("Restarts", "restarts"),
    ("WorkDir", "folder"), ("StdOut", "output"), ("StdErr", "error output"), ("Command", "script"),
)  # fmt: skip


def detail_query(id: str) -> Query:
    """Return the call for a job; it prints a line for each task of an array that began, and one for the others."""
    return Query(
        ("scontrol", "--oneliner", "show", "job", id),
        may_fail=True,
        environment=(TIME_ENVIRONMENT, ("SLURM_BITSTR_LEN", "0")),
    )


def parse_detail(output: str) -> list[JobStatus]:
    """Parse a job's detail; empty when the controller has forgotten the job."""
    # a name over several lines makes several of one record
    records = re.split(r"^(?=JobId=\d+ )", output, flags=re.MULTILINE)
    statuses = [_make_status(_read_fields(record)) for record in records if record.startswith("JobId=")]
    said = output.strip()
    if not statuses and said and not any(word in said for word in _ABSENT):
        raise SchedulerFailed("scontrol did not print a job", context={"said": said[:500]})
    return [each for each in statuses if each is not None]


def _read_fields(record: str) -> dict[str, str]:
    """The first value of each field: later ones are in texts that users write."""
    name = _NAME.search(record)
    fields = {"JobName": name[1], "User": name[2]} if name else {}
    rest = f" {record[: name.start()]}{record[name.end(1) :]}" if name else f" {record}"
    marks = list(_FIELD.finditer(rest))
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        value = rest[mark.end() : after.start() if after else len(rest)].strip()
        fields.setdefault(mark[1], value)
    return fields


def _make_status(fields: dict[str, str]) -> JobStatus | None:
    id = fields.get("ArrayJobId") or fields.get("JobId", "")
    raw = fields.get("JobState", "")
    if not (id.isdecimal() and id.isascii()) or not raw:
        return None  # cut off
    reason = read_text(fields.get("Reason", ""))
    state = read_state(raw, reason)
    index, pending = split_indices(fields.get("ArrayTaskId", ""))
    code, signal = read_exit(fields.get("ExitCode", ""))
    waits = state in (State.QUEUED, State.HELD)
    start = fields.get("StartTime", "")
    details = [(title, read_text(fields.get(key, ""))) for key, title in _DETAILS]
    if waits and read_time(start) is not None:
        details.insert(0, ("expected start", start))
    return JobStatus(
        id=id, state=state, raw=raw, index=index, pending_indices=pending, reason=reason,
        name=fields.get("JobName", ""),
        user=fields.get("User", ""),
        queue=read_text(fields.get("Partition", "")),
        nodes=read_text(fields.get("NodeList", "")),
        exit_code=code if state.is_final else None,
        signal=signal if state.is_final else None,
        submitted=read_time(fields.get("SubmitTime", "")),
        started=None if waits else read_time(start),
        ended=read_time(fields.get("EndTime", "")) if state.is_final else None,
        time_limit=read_duration(fields.get("TimeLimit", "")),
        details=tuple((title, value) for title, value in details if value not in ("", "0")),
    )  # fmt: skip


# How a job ended, in sentences, from its state, exit code and signal.

# slurmd's way to say that it could not open the job's files; no signal has this number
_NO_OUTPUT = 53


def explain(status: JobStatus) -> str:
    """Why it waits or how it failed; empty where there is nothing to say."""
    if status.state in (State.QUEUED, State.HELD):
        return explain_waiting(status)
    if status.state is State.UNKNOWN:
        return f"unknown Slurm state '{status.raw}'; 'scontrol show job {status.id}' shows more"
    sentence = _ENDINGS.get(status.state)
    return sentence(status) if sentence else ""


def _explain_failure(status: JobStatus) -> str:
    if status.reason == "BadConstraints":
        return "it never started: no node has what it requests (memory, CPUs, GPUs or features); request less"
    if status.signal == _NO_OUTPUT:
        return "the node could not open its output file: check that its directory exists there and is writable"
    if status.exit_code and not status.signal and EITHER_CODE in dict(status.details):
        return explain_code(status.exit_code, status.exit_code + 128)
    # first: Slurm calls it a JobLaunchFailure when the script itself was killed
    return explain_exit(status) or {
        "JobLaunchFailure": "the node could not start it, or its script was killed; its output may say more",
        "RaisedSignal": "a signal killed one of its programs; its output may say more",
        "NonZeroExitCode": "its script failed; its output may say more",
        "InvalidAccount": "you may not use its account; choose another with --account",
        "SystemFailure": "the cluster itself failed; submit it again",
    }.get(status.reason, "it failed, and Slurm gives no reason; its output may say more")


def _explain_timeout(status: JobStatus) -> str:
    if status.raw.upper().startswith("DEADLINE"):
        return "it could not complete before its deadline"
    return explain_timeout(status)


def _explain_memory(status: JobStatus) -> str:
    asked = dict(status.details).get("memory asked for")
    return explain_memory(f"requested: {asked}" if asked else "")


def _explain_preemption(_: JobStatus) -> str:
    return "a job with higher priority preempted it; submit it again, or to a partition without preemption"


def _explain_cancellation(status: JobStatus) -> str:
    _, by, who = status.raw.partition(" by ")
    if status.reason == "DependencyNeverSatisfied":
        return "it was cancelled because a job it depends on did not end as required"
    return f"it was cancelled by user id {who}" if by and who.isdecimal() else "it was cancelled"


_ENDINGS = {
    State.FAILED: _explain_failure,
    State.TIMEOUT: _explain_timeout,
    State.OUT_OF_MEMORY: _explain_memory,
    State.NODE_FAILED: explain_node,
    State.PREEMPTED: _explain_preemption,
    State.CANCELLED: _explain_cancellation,
}


# Commands that wait for an allocation and open a terminal in it: srun, salloc, and TACC's idev.

# A step of this kind holds no resources (20.11 and later), so that `srun` within it finds them all free;
# the shell keeps the counts of nodes and tasks of the whole job.
_INTERACTIVE_STEP = ("srun", "--interactive", "--preserve-env")


def interactive_argv(job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
    """The command; idev takes none to run, so there `command` is left out and has to be typed."""
    way = site.interactive or "srun"
    if way not in FACTS.interactive:
        raise RequestRefused(
            f"Slurm has no interactive command '{way}'",
            hint=f"the site's profile names one of: {', '.join(FACTS.interactive)}",
        )
    if way == "idev":
        return ["idev", *_idev_words(job, site)]
    options = [word for directive in interactive_directives(job, site) for word in directive.words]
    terminal = ["--pty"] if has_terminal else []
    # srun starts its command once for each task, and only the first would get the terminal
    if way == "salloc" or job.task_count > 1 or job.node_count > 1:
        return ["salloc", *options, *_INTERACTIVE_STEP, *terminal, *command]
    return ["srun", *options, *terminal, *command]


def _idev_words(job: Job, site: Site) -> Iterator[str]:
    if job.array is not None:
        raise RequestRefused("an array cannot run on a terminal", hint="leave --array out, or use 'kedge submit'")
    queue = job.queue or site.interactive_queue
    if queue:
        yield from ("-p", require_word(queue, "queue"))
    yield from ("-N", str(job.node_count), "-n", str(job.task_count))
    if job.time is not None:
        yield from ("-m", str(-(-job.time // 60)))
    account = job.account or site.account
    if account:
        yield from ("-A", require_word(account, "account"))
    if job.reservation:
        yield from ("-r", require_word(job.reservation, "reservation"))
    for line in job.directives:
        for directive in parse_directives(line):
            yield from directive.words


# Batch scripts for sbatch, the command that submits them, and the id it prints.

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


# A job's description as options of Slurm: nothing that neither the user nor the site asked for.

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
