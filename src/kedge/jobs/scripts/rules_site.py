# SPDX-License-Identifier: BSD-3-Clause
"""Rules about the site: what it refuses, what it wants, and how much of it there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.base.nearest import propose
from kedge.cluster.job import Job
from kedge.cluster.memory import shorten_memory
from kedge.cluster.schedulers.choose import find_facts, find_language
from kedge.cluster.schedulers.directive import show_option
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.rules import QueueRequest, UnmetRequest, find_broken_limits
from kedge.jobs.scripts.findings import Case, CheckResult

# why a site refuses what a profile calls so
_REFUSED = {
    "memory": "memory comes with the node",
    "gpus": "GPUs come with the queue",
    "arrays": "it has no arrays",
    "export": "it breaks the environment of the job",
    "exclusive": "its nodes are shared",
    "nodelist": "jobs that ask for certain nodes are deleted",
}
_REQUIRED = {
    "time": (("time",), "a time", "--time"),
    "nodes": (("nodes",), "a number of nodes", "-N"),
    "tasks": (("tasks", "tasks_per_node"), "a number of tasks", "-n or --ntasks-per-node"),
    "memory": (("memory", "memory_per_cpu", "memory_per_gpu"), "memory", "--mem"),
}
# where a script asks for what a limit of the queue is about
_LIMITED = {
    "time": ("time",),
    "nodes": ("nodes",),
    "gpus": ("gpus_per_node", "gpus", "gpus_per_task", "nodes"),
    "gpu_type": ("gpu_type",),
    "cpus": ("tasks_per_node", "cpus_per_task", "tasks", "nodes"),
    "memory": ("memory", "memory_per_cpu", "memory_per_gpu"),
}
_AMOUNTS = (
    *("nodes", "tasks", "tasks_per_node", "cpus_per_task", "gpu_type", "memory", "memory_per_cpu", "memory_per_gpu"),
    *("time", "reservation"),
)
_NAMES = {
    "account": (("account",), "an account", "-A (on the command line: -g at ABCI 2, -P at ABCI 3)"),
    "queue": (("queue",), "a queue", "-p or -q"),
}


def _check_refused(case: Case) -> Iterator[CheckResult]:
    if case.site is None:
        return
    for name in case.site.refuses:
        for directive in case.script.live:
            options = find_language(directive.scheduler).refusable.get(name, ())
            is_other = directive.option == "--gres" and "gpu" not in (directive.value or "")
            if directive.option in options and not is_other:
                yield CheckResult(
                    directive.line, f"{case.site.name} refuses {show_option(directive)}: {_REFUSED[name]}"
                )


def _check_required(case: Case) -> Iterator[CheckResult]:
    if case.site is None or not case.script.live:
        return
    for name in case.site.requires:
        keys, what, option = _REQUIRED.get(name, ((), "", ""))
        has_default = name == "time" and case.queue is not None and case.queue.default_time is not None
        if keys and not any(key in case.request.asked for key in keys) and not has_default:
            yield CheckResult(_last_line(case), f"{case.site.name} requires {what}", f"add {option}")


def _check_names(case: Case) -> Iterator[CheckResult]:
    if case.site is None or not case.script.live:
        return
    for name in case.site.requires:
        keys, what, option = _NAMES.get(name, ((), "", ""))
        if name == "account" and case.site.account_on_command_line:
            continue
        if keys and not any(key in case.request.asked for key in keys):
            yield CheckResult(
                _last_line(case), f"{case.site.name} requires {what}", f"add {option}, here or when submitting"
            )


def _check_account(case: Case) -> Iterator[CheckResult]:
    for directive in case.script.live:
        if sentence := find_language(directive.scheduler).command_line_only.get(directive.option):
            yield CheckResult(directive.line, sentence)


def _check_unknown_queue(case: Case) -> Iterator[CheckResult]:
    name = case.request.get("queue")
    if case.site is None or not name or not case.site.queues:
        return
    word = find_facts(case.site.scheduler).queue_word
    for part in str(name).split(","):
        part = part.partition("@")[0]
        if case.site.find_queue(part) is None:
            known = [queue.name for queue in case.site.queues if not queue.is_retired]
            remedy = propose(part, known) or f"it has: {', '.join(known[:12])}"
            yield CheckResult(case.request.line("queue"), f"{case.site.name} has no {word} '{part}'", remedy)


def _check_retired(case: Case) -> Iterator[CheckResult]:
    if case.queue is not None and case.queue.is_retired and case.site is not None:
        why = f": {case.queue.note}" if case.queue.note else ""
        remedy = case.site.notes[0] if case.site.notes else "choose another queue"
        yield CheckResult(case.request.line("queue"), f"the queue {case.queue.name} was switched off{why}", remedy)


def _check_limits(case: Case) -> Iterator[CheckResult]:
    for unmet in _find_broken_limits(case):
        if unmet.limit != "needs_gpus":
            remedy = _show_limit(unmet.limit, unmet.better) if unmet.better else ""
            yield CheckResult(case.request.line(*_LIMITED[unmet.limit]), unmet.reason, remedy)


def _check_needs_gpus(case: Case) -> Iterator[CheckResult]:
    for unmet in _find_broken_limits(case):
        if unmet.limit == "needs_gpus":
            yield CheckResult(case.request.line("queue"), unmet.reason)


def _find_broken_limits(case: Case) -> list[UnmetRequest]:
    """What `kedge submit` would say of the same request."""
    if case.site is None or case.queue is None:
        return []
    fields = {key: value for key in _AMOUNTS if (value := case.request.get(key)) is not None}
    job = Job(**fields, queue=case.queue.name, gpus_per_node=case.request.gpus_per_node)
    return find_broken_limits(QueueRequest(job, case.site, case.queue))


def _show_limit(limit: str, better: Job) -> str:
    """The remedy: the nearest request that the queue serves."""
    if limit == "time":
        return f"ask for at most {_show_time(better.time or 0)}"
    if limit == "memory":
        return f"ask for at most {(better.memory or 0) >> 20}M on each node"
    if limit == "gpu_type":
        return f"ask for {better.gpu_type}" if better.gpu_type else ""
    if limit == "nodes":
        return f"ask for {better.node_count} nodes"
    if limit == "gpus":
        nodes = f" on each of {better.node_count} nodes" if better.node_count > 1 else ""
        return f"ask for at most {better.gpus_per_node}{nodes}" if better.gpus_per_node else ""
    return f"ask for {better.node_count} nodes with {better.tasks_on_node} tasks of {better.cpus_per_task or 1} CPUs"


def _check_little_memory(case: Case) -> Iterator[CheckResult]:
    memory = case.site.default_memory_per_cpu if case.site else None
    keys = ("memory", "memory_per_cpu", "memory_per_gpu")
    has_all = any("all memory" in left.why for left in case.request.left)
    if case.site is not None and memory and not has_all and not any(key in case.request.asked for key in keys):
        yield CheckResult(
            _last_line(case), f"jobs without --mem get {shorten_memory(memory)} per CPU at {case.site.name}"
        )


def _check_hidden(case: Case) -> Iterator[CheckResult]:
    """Folders that compute nodes do not see, and a home that is one of them."""
    if case.site is None:
        return
    hidden = [re.escape(path.rstrip("/")) for path in case.site.hidden_paths]
    if not case.site.home_on_nodes:
        hidden += [r"\$\{?HOME\b", r"~(?=/)"]
    if not hidden:
        return
    pattern = re.compile(rf"(?:^|(?<=[\s:,='\"]))(?:{'|'.join(hidden)})(?![\w.-])")
    live = case.script.live_lines
    for number, line in enumerate(case.script.text.split("\n"), 1):
        if (number in live or not line.lstrip().startswith("#")) and (match := pattern.search(line)):
            where = case.site.scratch or "the scratch file system"
            shown = match.group() + ("}" if match.group().startswith("${") else "")
            yield CheckResult(number, f"compute nodes of {case.site.name} do not see {shown}", f"put it on {where}")


def _check_modules(case: Case) -> Iterator[CheckResult]:
    if case.site is None or not case.site.module_setup or not case.script.modules:
        return
    line, name = case.script.modules[0]
    before = "\n".join(text for number, text in case.script.body if number < line)
    files = [word for setup in case.site.module_setup for word in setup.split() if word.startswith("/")]
    if not any(file in before for file in files) and "-l" not in case.script.shebang.split()[1:]:
        setup = "; ".join(case.site.module_setup)
        yield CheckResult(line, f"'module load {name}' comes before modules are set up", f"put before it: {setup}")


def _check_shell(case: Case) -> Iterator[CheckResult]:
    shebang = case.script.shebang
    program = shebang[2:].split()[0] if shebang[2:].split() else ""
    if case.site is not None and case.site.launcher == "ibrun" and program.rpartition("/")[2] == "sh":
        yield CheckResult(1, f"{case.site.name} requires #!/bin/bash, not {program}")


def _check_launcher(case: Case) -> Iterator[CheckResult]:
    if case.site is None or case.site.launcher != "ibrun":
        return
    for command in case.script.launchers:
        if command.name == "srun":
            yield CheckResult(command.line, f"{case.site.name} starts tasks with ibrun, not srun")


def _last_line(case: Case) -> int:
    return case.script.live[-1].line if case.script.live else 1


def _show_time(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def find_queue(site: Site | None, name: object) -> Queue | None:
    """The queue a script asks for, or gets when it names none."""
    if site is None:
        return None
    return site.find_queue(str(name).partition(",")[0].partition("@")[0]) if name else site.default_queue


CHECKS = {
    "refused-by-site": _check_refused,
    "missing-at-site": _check_required,
    "account-or-queue-missing": _check_names,
    "group-in-script": _check_account,
    "unknown-queue": _check_unknown_queue,
    "retired-queue": _check_retired,
    "over-limit": _check_limits,
    "queue-needs-gpus": _check_needs_gpus,
    "little-memory": _check_little_memory,
    "hidden-path": _check_hidden,
    "modules-not-set-up": _check_modules,
    "wrong-shell": _check_shell,
    "wrong-launcher": _check_launcher,
}
