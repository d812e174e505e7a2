# SPDX-License-Identifier: BSD-3-Clause
"""Rules about Slurm alone: what sbatch refuses or overlooks, and what srun does; tried against 22.05."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.cluster.schedulers.directive import CutOption, show_option
from kedge.cluster.schedulers.script_request import ScriptRequest
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.schedulers.slurm.language import LANGUAGE, MAIL_TYPES
from kedge.jobs.scripts.containers import skip_prefix
from kedge.jobs.scripts.findings import Case, CheckResult
from kedge.jobs.scripts.rules_body import list_code

_NODE_RANK = re.compile(r"(?:NODE_RANK=|--node_rank[= ]|--node-rank[= ]|--machine_rank[= ])[\"'\\]*\$\{?SLURM_PROCID\b")
_OLD = {"SLURM_JOBID": "SLURM_JOB_ID", "SLURM_NODELIST": "SLURM_JOB_NODELIST"}
_OLD_NAMES = re.compile(r"\$\{?(" + "|".join(_OLD) + r")\b")
# programs for which one CPU is enough
_SMALL = (
    "cat chmod cp date df echo env free hostname id ip ls mkdir mv nvidia-smi printenv printf pwd rm sleep true uname"
)

_GPUS = frozenset(("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket", "--gres"))
# an option, what it needs one of, and what to do
_NEEDS = (
    ("--gpus-per-task", ("--gpus", "--ntasks", "--ntasks-per-node", "--nodes"), "add --ntasks"),
    ("--gpus-per-socket", ("--sockets-per-node",), "add --sockets-per-node, or write --gpus-per-node"),
    ("--mem-per-gpu", tuple(sorted(_GPUS)), "ask for GPUs, or write --mem"),
    ("--cpus-per-gpu", tuple(sorted(_GPUS)), "ask for GPUs, or write --cpus-per-task"),  # without: no effect before 23
    ("--ntasks-per-gpu", (*sorted(_GPUS), "--ntasks", "--nodes"), "ask for GPUs"),
)
_EXCLUDE = (
    ("--ntasks-per-gpu", "--ntasks-per-node"),
    ("--ntasks-per-gpu", "--gpus-per-task"),
    ("--cpus-per-gpu", "--cpus-per-task"),
)


def _check_lonely(case: Case) -> Iterator[CheckResult]:
    given = _options(case)
    for option, needed, remedy in _NEEDS:
        found = case.script.find(option)
        if found and option in given and not given.keys() & set(needed) and found.value not in ("0", ""):
            yield CheckResult(given[option], f"sbatch refuses {option} without {' or '.join(needed[:3])}", remedy)
    distribution = case.script.find("--distribution")
    is_arbitrary = distribution is not None and (distribution.value or "").lower().startswith("arbitrary")
    if distribution and is_arbitrary and not given.keys() & {"--nodelist", "--nodefile"}:
        yield CheckResult(
            distribution.line, "sbatch refuses --distribution=arbitrary without --nodelist", "name the nodes"
        )


def _check_exclusion(case: Case) -> Iterator[CheckResult]:
    given = _options(case)
    for first, second in _EXCLUDE:
        if first in given and second in given:
            yield CheckResult(max(given[first], given[second]), f"sbatch refuses {first} and {second} together")


def _check_sums(case: Case) -> Iterator[CheckResult]:
    """GPUs of the job that are not those of its nodes or tasks together."""
    request, given = case.request, _options(case)
    total = request.number("gpus")
    if not given or not total:
        return
    tasks = request.number("tasks")
    if per_node := request.number("gpus_per_node"):
        if total % per_node or (
            "nodes" in request.asked and total != per_node * request.nodes and not _is_range(request)
        ):
            yield CheckResult(request.line("gpus"), f"sbatch refuses --gpus={total} with {per_node} GPUs on each node")
    elif (per_task := request.number("gpus_per_task")) and (total % per_task or (tasks and total != tasks * per_task)):
        yield CheckResult(request.line("gpus"), f"sbatch refuses --gpus={total} with {per_task} for each task")
    elif total < request.nodes and not _is_range(request) and (tasks or request.nodes) >= request.nodes:
        yield CheckResult(
            request.line("gpus"), f"sbatch refuses {total} GPUs for {request.nodes} nodes: each has one at least"
        )


def _is_range(request: ScriptRequest) -> bool:
    return "-" in (request.asked["nodes"].directive.value or "") if "nodes" in request.asked else False


def _options(case: Case) -> dict[str, int]:
    """The options and their lines; none of a heterogeneous job, whose parts are judged each alone."""
    live = [directive for directive in case.script.live if directive.scheduler == FACTS.name]
    if case.script.scheduler != FACTS.name or any(directive.option in LANGUAGE.separators for directive in live):
        return {}
    return {directive.option: directive.line for directive in live}


def _check_memory_twice(case: Case) -> Iterator[CheckResult]:
    if case.script.scheduler != FACTS.name:
        return
    asked: dict[str, int] = {}
    for directive in case.script.live:
        if directive.option in LANGUAGE.separators:
            asked.clear()
        elif directive.option in ("--mem", "--mem-per-cpu", "--mem-per-gpu") and directive.option not in asked:
            asked[directive.option] = directive.line
            if len(asked) > 1:
                yield CheckResult(directive.line, f"sbatch refuses {' and '.join(sorted(asked))} together")


def _check_mail_words(case: Case) -> Iterator[CheckResult]:
    for directive in case.script.live:
        words = (
            [word.strip() for word in (directive.value or "").split(",")] if directive.option == "--mail-type" else []
        )
        wrong = [word for word in words if word.lower() not in MAIL_TYPES and word]
        if wrong and len(wrong) < len(words):
            yield CheckResult(
                directive.line, f"sbatch ignores {wrong[0]} in {show_option(directive)}: it is no reason for mail"
            )


def _check_masked_gpus(case: Case) -> Iterator[CheckResult]:
    masks = [directive for directive in case.script.live if directive.option in ("--gpus-per-task", "--gpu-bind")]
    lines = [(directive.line, show_option(directive)) for directive in masks if "none" not in (directive.value or "")]
    lines += [
        (command.line, word.text.partition("=")[0])
        for command in case.script.launchers
        for word in command.words
        if re.match(r"--gpus-per-task\b|--gpu-bind=(?!none)", word.text)
    ]
    if re.search(r"LOCAL_RANK|SLURM_LOCALID", case.script.text):
        for line, shown in lines[:1]:
            yield CheckResult(
                line, f"with {shown} every task sees its GPU as number 0, but the script counts by local rank"
            )


def _check_node_rank(case: Case) -> Iterator[CheckResult]:
    if case.request.tasks_per_node < 2:
        return
    for number, line in list_code(case):
        if _NODE_RANK.search(line):
            yield CheckResult(
                number,
                f"SLURM_PROCID counts tasks, and each node has {case.request.tasks_per_node}: it is no node rank",
            )


def _check_srun_cpus(case: Case) -> Iterator[CheckResult]:
    """One task alone gets all CPUs of the step, whatever it asks for: tried with srun 22.05."""
    if (case.request.number("cpus_per_task") or 1) < 2 or case.script.scheduler != FACTS.name:
        return
    if re.search(r"SRUN_CPUS_PER_TASK|\bOMP_NUM_THREADS=1\b", case.script.text):
        return  # it is said, or one CPU is enough
    for command in case.script.launchers:
        words = [word.text for word in skip_prefix(command.words)]
        if words[0] == "srun" and _lacks_cpus(words[1:], case.request.tasks_per_node):
            message = "srun of Slurm 22.05 to 23.02 forgets --cpus-per-task: where tasks are bound, each gets one CPU"
            yield CheckResult(command.line, message)
            return


def _lacks_cpus(words: list[str], tasks_per_node: int) -> bool:
    """Whether srun starts several tasks of a program that needs CPUs, and says nothing of CPUs."""
    options = _own_options(words)
    names = {option.name: option.value for option in options}
    if names.keys() & {"--cpus-per-task", "--exclusive", "--exact", "--overlap"}:
        return False
    if names.get("--ntasks-per-node", names.get("--ntasks", "")) == "1" or tasks_per_node < 2:
        return False
    if re.search(r"--cpu[-_]bind[= ]\S*(?:none|no\b|mask|map)", " ".join(words)):
        return False  # it says itself which CPUs each task gets
    program = next((option.value or "" for option in LANGUAGE.cut_all(words)[len(options) :]), "")
    if program in ("bash", "sh"):
        inner = words[words.index(program) + 1 :]
        program = next(iter(inner[1].split()), "") if inner[:1] == ["-c"] and inner[1:] else program
    program = program.rpartition("/")[2]
    return bool(program) and not program.startswith("$") and program not in _SMALL.split()


def _own_options(words: list[str]) -> list[CutOption]:
    """The options before the program that srun starts."""
    options = LANGUAGE.cut_all(words)
    return options[: next((index for index, option in enumerate(options) if not option.name), len(options))]


def _check_old_names(case: Case) -> Iterator[CheckResult]:
    seen = set()
    for number, line in list_code(case):
        for name in _OLD_NAMES.findall(line):
            if name not in seen:
                seen.add(name)
                yield CheckResult(number, f"{name} is a deprecated name", f"write {_OLD[name]}")


CHECKS = {
    "lonely-option": _check_lonely,
    "excluding-options": _check_exclusion,
    "gpus-do-not-add-up": _check_sums,
    "memory-twice": _check_memory_twice,
    "overlooked-value": _check_mail_words,
    "masked-gpus": _check_masked_gpus,
    "wrong-node-rank": _check_node_rank,
    "srun-forgets-cpus": _check_srun_cpus,
    "old-variable": _check_old_names,
}
