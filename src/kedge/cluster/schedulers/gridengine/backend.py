# SPDX-License-Identifier: BSD-3-Clause
"""The backend for Grid Engine: scripts for `qsub`, and what `qstat`, `qacct` and `qdel` are asked."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kedge.base.duration import format_duration
from kedge.base.frozen import replace
from kedge.cluster.job import DependencyKind, Job
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.output_pattern import make_file_name, split_pattern
from kedge.cluster.schedulers.backend import Backend, Dialect, Query, ScriptContext
from kedge.cluster.schedulers.exit_text import explain_exit, explain_timeout, explain_used_memory
from kedge.cluster.schedulers.gridengine import FACTS
from kedge.cluster.schedulers.gridengine.accounts import parse_accounts
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
from kedge.cluster.schedulers.quantities import read_iso_time, read_printed_time, read_seconds
from kedge.cluster.schedulers.script_body import needs_lookup, render_body
from kedge.cluster.schedulers.shell_words import require_word
from kedge.cluster.site import Queue, Site
from kedge.errors import RequestRefused, SchedulerFailed

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

DIALECT = Dialect(
    submit_word=FACTS.submit,
    job_id="$JOB_ID",
    array_index=FACTS.job_mark,
    first_node=('read -r first_node _ <"$PE_HOSTFILE"',),
    launcher="mpirun",
    has_array_lists=FACTS.has_array_lists,
    first_index=FACTS.first_index,
    has_dependency_kinds=False,
)
_ID = re.compile(r"^\s*(\d+)(?:\.\d+-\d+:\d+)?\s*$|^Your job(?:-array)? (\d+)[. ]", re.MULTILINE)
# Grid Engine reads directives in the whole script, not only above the first command
_DIRECTIVE_IN_TEXT = re.compile(r"^#\$", re.MULTILINE)


class _GridEngine:
    """See `kedge.cluster.schedulers.backend.Backend`."""

    name = FACTS.name

    def make_dialect(self, job: Job, place: ScriptContext) -> Dialect:
        """The dialect of one job's script."""
        if needs_redirection(job, place, DIALECT):
            return replace(DIALECT, opening=redirect_output(job, place))
        return DIALECT

    def render(self, job: Job, site: Site, place: ScriptContext) -> str:
        """The script."""
        dialect = self.make_dialect(job, place)
        lines = [*collect_request(job, site), *collect_batch(job, place, dialect)]
        directives = [write_directive(directive, GRAMMAR) for directive in merge_directives(lines, job, site, GRAMMAR)]
        written = replace(site, setup=_hide(site.setup)), replace(job, setup=_hide(job.setup))
        body = render_body(written[1], written[0], place, dialect)
        # such a line can only be inside a quoted word of the user's, which two quotes do not change
        body = _DIRECTIVE_IN_TEXT.sub("''#$", body)
        return "\n".join(["#!/bin/bash", *directives, "", body])

    def submit_argv(self, script: str, job: Job, site: Site) -> list[str]:
        """`qsub -terse` prints the id alone."""
        return ["qsub", "-terse", *choose_account(job, site, "-P"), script]

    def parse_submit(self, output: str) -> str:
        """`7`, or `7.1-3:1` for an array; a site's own words may stand around it."""
        found = list(_ID.finditer(output))
        if not found:
            raise SchedulerFailed("qsub printed no job id", context={"said": output[-2000:]})
        return found[-1][1] or found[-1][2]

    def interactive_argv(self, job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
        """`qrsh` gives its words to a shell, so they go as one; without `-now n` it fails where nothing is free.

        With `-pty y` and no terminal it ends before the command does, with status 0.
        """
        options = merge_directives([*collect_request(job, site), ("-cwd",)], job, site, GRAMMAR)
        words = [word for each in options for word in each]
        call = ["qrsh", "-now", "n", *choose_account(job, site, "-P"), *words]
        call += ["-pty", "y"] if command and has_terminal else []
        return [*call, shlex.join(command)] if command else call

    def list_query(self, user: str) -> Query:
        """Return the call that lists all jobs that wait or run."""
        return Query(("qstat", "-u", user, "-xml"))

    def parse_list(self, output: str) -> list[JobStatus]:
        """Tasks of an array that wait are one entry."""
        return parse_job_list(output)

    def detail_query(self, id: str) -> Query | None:
        """Why it waits, or why it is in error."""
        return Query(("qstat", "-j", id), may_fail=True)

    def parse_detail(self, output: str) -> list[JobStatus]:
        """Empty when it is over."""
        return parse_job_detail(output)

    def history_query(self, ids: Sequence[str], since: float) -> Query | None:
        """`qacct` takes one id; for several it is asked for all that began since then."""
        if len(ids) == 1:
            return Query(("qacct", "-j", ids[0]), may_fail=True)
        begin = time.strftime("%Y%m%d%H%M", time.localtime(max(since, 0)))
        return Query(("qacct", "-j", "-b", begin), may_fail=True)

    def parse_history(self, output: str) -> list[JobStatus]:
        """The last word about each job or task."""
        return parse_accounts(output)

    def cancel_argv(self, ids: Sequence[str], signal: str = "") -> list[str]:
        """`12_3` is `12.3` here."""
        if signal:
            raise RequestRefused(
                "Grid Engine has no command that sends a signal to a job", hint="leave out --signal to end it"
            )
        return ["qdel", *(id.replace("_", ".") for id in ids)]

    def explain(self, status: JobStatus) -> str:
        """In a sentence."""
        return explain_status(status)

    def is_stuck(self, status: JobStatus) -> bool:
        """`Eqw`: it waits until somebody clears its error."""
        return is_in_error(status)


def _hide(lines: Sequence[str]) -> tuple[str, ...]:
    """Comments of a setup that Grid Engine would take for directives."""
    return tuple(_DIRECTIVE_IN_TEXT.sub(" #$", line) for line in lines)


BACKEND: Backend = _GridEngine()


# `qstat -j ID`: what one job asked for, and why it waits or is in error.

_FIELD = re.compile(r"([A-Za-z_][\w/ -]*?)(?:\s+(\d+))?:\s*(.*)")  # the number is a task's
_INDENT = " " * 20
_STAMP = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d \[[^\]]*\]:\s*")
_TIME_LIMIT = re.compile(r"(?:^|,)h_rt=([\d:]+)")
_SHOWN = (
    "hard resource_list",
    "parallel environment",
    "hold_jid",
    "predecessor_jobs",
    "usage",
    "cwd",
    "execution_time",
)


def parse_job_detail(output: str) -> list[JobStatus]:
    """The job, with all reasons in one text; an empty `raw` means that only the list knows its state."""
    fields = _read_fields(output)
    id = (fields.get("job_number") or [""])[0]
    if not id.isdecimal():
        return []
    reasons = [_STAMP.sub("", each) for each in (*fields.get("error reason", []), *fields.get("scheduling info", []))]
    limit = _TIME_LIMIT.search((fields.get("hard resource_list") or [""])[0])
    shown = [(name, "; ".join(fields[name])) for name in _SHOWN if name in fields]
    state, raw = _find_state(fields)
    return [
        JobStatus(
            id=id,
            state=state,
            raw=raw,
            reason="; ".join(dict.fromkeys(reasons)),
            name=(fields.get("job_name") or [""])[0],
            user=(fields.get("owner") or [""])[0],
            submitted=read_printed_time((fields.get("submission_time") or [""])[0]),
            time_limit=read_seconds(limit[1]) if limit else None,
            details=tuple(shown),
        )
    ]


def _read_fields(output: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in output.splitlines():
        if line.startswith(_INDENT):  # the same field goes on
            current.append(line.strip())
            continue
        field = _FIELD.match(line)
        if field is not None:
            current = found.setdefault(field[1], [])
            current.append(field[3].strip())
    return found


def _find_state(fields: dict[str, list[str]]) -> tuple[State, str]:
    """Newer versions say it; 8.1.9 does not, and an empty word sends whoever asks to the list."""
    letters = (fields.get("job_state") or [""])[0]
    return (read_state(letters), letters) if letters else (State.UNKNOWN, "")


# Why a job of Grid Engine waits or how it failed, in sentences with the remedy.

_OFFERS = re.compile(
    r'\(-l ([^)]*)\) cannot run at host "([^"]*)" because it offers only h[cl]:([\w.]+)=(\d+(?:\.\d+)?)'
)
_FULL = re.compile(r'queue instance "[^"]*" dropped because it is (full|overloaded|temporarily not available)')
_ENVIRONMENT = re.compile(r'cannot run in PE "([^"]*)" because it only offers (-?\d+) slots')
_UNREQUESTABLE = re.compile(r'cannot run in queue "([^"]*)" because')
# the latter where a directory on the way is closed to the user, and with what the node knows of the user behind it
_NO_OUTPUT = re.compile(
    r'can\'t (?:open output file "([^"]*)"|stat\(\) "([^"]*)" as std(?:out|err)_path): ([^;]*?)(?: KRB5CCNAME=|;|$)'
)
_NO_FOLDER = re.compile(r"can't chdir to ([^:;]*): ([^;]*)")


def explain_status(status: JobStatus) -> str:
    """Empty when there is nothing to say."""
    if is_in_error(status):
        return _explain_error(status)
    if status.state in (State.QUEUED, State.HELD):
        return _explain_waiting(status)
    return _ENDINGS[status.state](status) if status.state in _ENDINGS else ""


def is_in_error(status: JobStatus) -> bool:
    """Whether Grid Engine gave up to start it."""
    return "E" in status.raw and status.state is State.HELD


def _explain_error(status: JobStatus) -> str:
    output, folder = _NO_OUTPUT.search(status.reason), _NO_FOLDER.search(status.reason)
    if output:
        why = f"the node could not open its output file {output[1] or output[2]} ({output[3]})"
    elif folder:
        why = f"the node could not enter its directory {folder[1]} ({folder[2].strip()})"
    else:
        why = status.reason.removesuffix("; Job is in error state") or "'qstat -j' says why"
    return (
        f"Grid Engine could not start it and put it into an error state: {why}; fix that and retry with 'qmod -cj"
        f" {status.id}', or cancel it"
    )


def _explain_waiting(status: JobStatus) -> str:
    reason = status.reason
    offers = _OFFERS.findall(reason)
    if offers:
        return _explain_offers(offers)
    environment = _ENVIRONMENT.search(reason)
    if environment:
        return (
            f"the parallel environment {environment[1]} has {environment[2]} free slots; it waits for more. If"
            f" 'qconf -sp {environment[1]}' and the queues have fewer in total, it never starts: request fewer CPUs"
        )
    if "job dependencies" in reason:
        return "it waits for the jobs that it depends on"
    if status.state is State.HELD:
        return f"it is held; release it with 'qrls {status.id}', unless another job or an operator holds it"
    if "not yet reached" in reason or "execution time" in reason:
        return "its start time is not reached"
    if "max_aj_instances" in reason:
        return "its array runs as many tasks at once as it allows"
    if "turned off" in reason:
        return "it waits in the queue; this site does not publish the reason"
    full = _FULL.search(reason)
    if full:
        return f"it waits for a free slot: the queues it may use are {full[1]}"
    if _UNREQUESTABLE.search(reason):
        return f"no queue accepts it: {reason.split(';')[0]}"
    return f"it waits: {reason.split(';')[0]}" if reason else ""


def _explain_offers(offers: list[tuple[str, str, str, str]]) -> str:
    """The figure is what is free at the moment; the total is unknown."""
    best = max(offers, key=lambda each: float(each[3]))
    wanted, host, resource, left = best
    left = left.rstrip("0").rstrip(".") if "." in left else left
    asked = dict(piece.partition("=")[::2] for piece in wanted.split(",")).get(resource, "more")
    return (
        f"it requests {resource}={asked}, and {host} has {left or '0'} left; it waits for other jobs to end. If no node"
        " has that many in total, it never starts: cancel it and request less"
    )


def _explain_failure(status: JobStatus) -> str:
    if status.reason and status.exit_code is None and status.signal is None:
        return f"Grid Engine could not run it on {status.nodes or 'the node'}: {status.reason}"
    return explain_exit(status)


def _explain_cancelled(status: JobStatus) -> str:
    by = dict(status.details).get("deleted_by")
    if by:
        return f"{by} deleted it"
    return "it was killed (SIGKILL) by 'qdel', or because its node ran out of memory"


def _explain_lost(status: JobStatus) -> str:
    if status.reason == "rescheduling":
        return "it was requeued, and deleted before it started again"
    return ""


_ENDINGS: dict[State, Callable[[JobStatus], str]] = {
    State.FAILED: _explain_failure,
    State.CANCELLED: _explain_cancelled,
    State.TIMEOUT: explain_timeout,
    State.OUT_OF_MEMORY: partial(explain_used_memory, detail="maxvmem"),
    State.LOST: _explain_lost,
}


# `qstat -xml`: jobs that wait, run, or are stuck; and Grid Engine's letters for that, see qstat(1).

_LETTERS = frozenset("dEhrRsStTqw")
# XML has no place for these, and names of jobs may have them
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_DECLARATION = re.compile(r"<!\s*(DOCTYPE|ENTITY)", re.IGNORECASE)


def read_state(letters: str) -> State:
    """`hqw`, `Rr`, `dT` …: letters for what is true of a job at once."""
    flags = set(letters)
    if not flags or not flags <= _LETTERS:
        return State.UNKNOWN
    if "d" in flags:
        return State.COMPLETING
    if "E" in flags:
        return State.HELD
    if "q" in flags or "w" in flags:
        return State.HELD if "h" in flags else State.QUEUED
    if flags & set("sST"):
        return State.SUSPENDED
    return State.RUNNING if flags & set("rt") else State.UNKNOWN


def parse_job_list(output: str) -> list[JobStatus]:
    """Every job and running task that `qstat -xml` tells of."""
    if not output.strip():
        return []
    root = _read_document(output)
    return [status for each in root.iter("job_list") if (status := _read_job(each)) is not None]


def _read_document(output: str) -> Element:
    from xml.etree.ElementTree import ParseError, fromstring  # late: only Grid Engine speaks XML

    begin = output.find("<?xml")
    text = _FORBIDDEN.sub("?", output[max(begin, 0) :])
    if _DECLARATION.search(text):
        raise SchedulerFailed("qstat printed XML with a document type, which Grid Engine never does")
    try:
        # as bytes: the declaration may name an encoding, and a string with one is refused
        return fromstring(re.sub(r"^<\?xml[^>]*\?>", "", text).encode("utf-8", "replace"))
    except (ParseError, ValueError) as problem:
        raise SchedulerFailed(
            f"qstat printed invalid XML: {problem}", context={"said": output[-2000:]}, hint="try it again"
        ) from None


def _read_job(entry: Element) -> JobStatus | None:
    fields = {each.tag: (each.text or "").strip() for each in entry}
    id, letters = fields.get("JB_job_number", ""), fields.get("state", "")
    if not id.isdecimal():
        return None
    tasks = ",".join(piece.removesuffix(":1") for piece in fields.get("tasks", "").split(","))
    is_one = tasks.isdecimal()
    queue, _, host = fields.get("queue_name", "").partition("@")
    return JobStatus(
        id=id,
        state=read_state(letters),
        raw=letters,
        index=int(tasks) if is_one else None,
        pending_indices="" if is_one else tasks,
        name=fields.get("JB_name", ""),
        user=fields.get("JB_owner", ""),
        queue=queue,
        nodes=host,
        submitted=read_iso_time(fields.get("JB_submission_time", "")),
        started=read_iso_time(fields.get("JAT_start_time", "")),
        details=(("slots", fields["slots"]),) if fields.get("slots") else (),
    )


# What a job asks for in Grid Engine's words: slots of parallel environments, resources, and the rest of qsub(1).

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
