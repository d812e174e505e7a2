# SPDX-License-Identifier: BSD-3-Clause
"""Rules about what a script asks for: requests that are refused, or mean something else than they look."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.batchscript.findings import Case, Found, Rule, Severity
from kedge.batchscript.request import show_option

_STARTERS = re.compile(r"\b(srun|mpirun|mpiexec|ibrun|torchrun|torch\.distributed|horovodrun|deepspeed|accelerate)\b")


def _check_total_gpus(case: Case) -> Iterator[Found]:
    asked = case.request.asked.get("gpus")
    if asked is None or case.request.nodes < 2 or "gpus_per_node" in case.request.asked:
        return
    nodes, total = case.request.nodes, int(asked.value)
    share = total // nodes
    remedy = f"write --gpus-per-node={share}" if total % nodes == 0 else "write --gpus-per-node"
    yield Found(asked.line, f"--gpus={total} on {nodes} nodes may give them unequal shares, such as 3 and 1", remedy)


def _check_memory_twice(case: Case) -> Iterator[Found]:
    if case.script.scheduler != "slurm":
        return
    asked = [each for each in case.script.live if each.option in ("--mem", "--mem-per-cpu", "--mem-per-gpu")]
    if len({each.option for each in asked}) > 1:
        names = " and ".join(sorted({each.option for each in asked}))
        yield Found(asked[-1].line, f"sbatch refuses {names} together")


def _check_time(case: Case) -> Iterator[Found]:
    directive = case.script.find("--time")
    value = directive.value or "" if directive else ""
    if directive is not None and re.fullmatch(r"\d+:\d+", value):
        minutes, _, seconds = value.partition(":")
        yield Found(
            directive.line,
            f"--time={value} is {minutes} minutes and {seconds} seconds",
            f"for hours and minutes write {value}:00",
        )
    asked = case.request.asked.get("time")
    if asked is None or case.script.scheduler == "slurm":
        return
    found = re.search(r"(?:h_rt|walltime)=(\d+)(?![\d:])", asked.directive.value or "")
    if found and int(found[1]) < 600:
        yield Found(
            asked.line, f"a bare number is seconds: {found[0]} is {found[1]} seconds", "write hours:minutes:seconds"
        )


def _check_minutes(case: Case) -> Iterator[Found]:
    directive = case.script.find("--time")
    if directive is not None and (directive.value or "").isdecimal():
        yield Found(directive.line, f"a bare number is minutes: {show_option(directive)} is {directive.value} minutes")


def _check_directory(case: Case) -> Iterator[Found]:
    script = case.script
    goes = re.search(r"^\s*cd\s|_O_WORKDIR\b", script.text, re.M) is not None
    if goes or not script.live or {"cwd", "directory"} & set(case.request.asked):
        return
    if script.scheduler == "gridengine":
        yield Found(script.live[0].line, "without -cwd or -wd the job runs in the home folder", "add #$ -cwd")
    elif script.scheduler == "pbs":
        line = script.body[0][0] if script.body else script.live[0].line
        yield Found(line, "a PBS job runs in the home folder", 'begin with: cd "$PBS_O_WORKDIR"')


def _check_output_folder(case: Case) -> Iterator[Found]:
    for key in ("output", "error"):
        asked = case.request.asked.get(key)
        folder = str(asked.value).rpartition("/")[0] if asked else ""
        if asked is None or not folder or "{" in folder or "$" in folder or "%" in folder:
            continue
        if case.has_file(folder) is False:
            yield Found(
                asked.line,
                f"the folder {folder} is not there, and no scheduler makes it: the job fails without a word",
                f"mkdir -p {folder}",
            )


def _check_array_output(case: Case) -> Iterator[Found]:
    asked = case.request.asked.get("output")
    if asked is None or "array" not in case.request.asked or case.script.scheduler != "slurm":
        return
    if not re.search(r"%\d*[aAjJ]", asked.directive.value or ""):
        yield Found(asked.line, "all tasks of the array write to the same file, over each other")


def _check_masked_gpus(case: Case) -> Iterator[Found]:
    masks = [each for each in case.script.live if each.option in ("--gpus-per-task", "--gpu-bind")]
    lines = [(each.line, show_option(each)) for each in masks if "none" not in (each.value or "")]
    lines += [
        (command.line, word.text.partition("=")[0])
        for command in case.script.launchers
        for word in command.words
        if re.match(r"--gpus-per-task\b|--gpu-bind=(?!none)", word.text)
    ]
    if re.search(r"LOCAL_RANK|SLURM_LOCALID", case.script.text):
        for line, shown in lines[:1]:
            yield Found(line, f"with {shown} every task sees its GPU as number 0, but the script counts by local rank")


def _check_many_tasks(case: Case) -> Iterator[Found]:
    """Tasks that are asked for and never started."""
    request, script = case.request, case.script
    tasks = max(request.number("tasks") or 0, request.number("tasks_per_node") or 0)
    if tasks < 2 or script.scheduler != "slurm" or not script.containers or _STARTERS.search(script.text):
        return
    line = request.line("tasks", "tasks_per_node")
    yield Found(line, f"{tasks} tasks are asked for, but nothing in the script starts more than one")


RULES = (
    Rule(
        "gpus-on-several-nodes",
        Severity.WARNING,
        "--gpus (-G) counts GPUs of the whole job, which may be spread unequally (3 and 1 were seen)",
        "write --gpus-per-node",
        _check_total_gpus,
    ),
    Rule(
        "memory-twice",
        Severity.ERROR,
        "--mem, --mem-per-cpu and --mem-per-gpu exclude each other",
        "keep one of them",
        _check_memory_twice,
    ),
    Rule(
        "short-time",
        Severity.WARNING,
        "a time that is shorter than it looks: --time=1:30 is minutes and seconds, h_rt=90 and walltime=90 are seconds",
        "write hours:minutes:seconds",
        _check_time,
    ),
    Rule(
        "time-in-minutes",
        Severity.NOTE,
        "a bare number in --time is minutes (seconds, for Grid Engine and PBS)",
        "write hours:minutes:seconds, which all schedulers read alike",
        _check_minutes,
    ),
    Rule(
        "runs-in-home",
        Severity.WARNING,
        "Grid Engine without -cwd, and PBS, start jobs in the home folder",
        'add #$ -cwd, or cd "$PBS_O_WORKDIR"',
        _check_directory,
    ),
    Rule(
        "output-folder-missing",
        Severity.WARNING,
        "the folder of the output file is not there",
        "make it before submitting",
        _check_output_folder,
    ),
    Rule(
        "array-one-output",
        Severity.WARNING,
        "the tasks of an array share one output file",
        "put %A_%a into its name",
        _check_array_output,
    ),
    Rule(
        "masked-gpus",
        Severity.WARNING,
        "--gpus-per-task and --gpu-bind show each task one GPU, number 0, whatever its local rank is",
        "ask with --gpus-per-node, which shows all tasks all GPUs of the node",
        _check_masked_gpus,
    ),
    Rule(
        "tasks-not-started",
        Severity.WARNING,
        "several tasks are asked for, and no launcher starts the container as often",
        "put srun (at TACC: ibrun) before the command, or ask for one task with more CPUs",
        _check_many_tasks,
    ),
)
