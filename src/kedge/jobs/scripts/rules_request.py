# SPDX-License-Identifier: BSD-3-Clause
"""Rules about what a script asks for: requests that are refused, or mean something else than they look."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.cluster.launchers.known import list_launchers
from kedge.cluster.schedulers.choose import find_language
from kedge.cluster.schedulers.directive import show_option
from kedge.jobs.scripts.findings import Case, CheckResult

_STARTS = re.compile(rf"\b({'|'.join(map(re.escape, list_launchers('processes')))})\b")
# of M:S, the minutes that are rather meant as hours; 15:00 and 30:00 are what they look like
_LIKELY = (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96, 120, 168)
_HOURS = {"0", *(f"{hours:{form}}" for hours in _LIKELY for form in ("d", "02d"))}
# a file by its name alone, or below the directory one is in
_RELATIVE = re.compile(r"(?:\.{1,2}/.*|[\w][\w.-]*(?:/[\w.-]+)*\.[A-Za-z]\w{0,4})")


def _check_total_gpus(case: Case) -> Iterator[CheckResult]:
    asked = case.request.asked.get("gpus")
    if asked is None or case.request.nodes < 2 or "gpus_per_node" in case.request.asked:
        return
    nodes, total = case.request.nodes, int(asked.value)
    share = total // nodes
    remedy = f"write --gpus-per-node={share}" if total % nodes == 0 else "write --gpus-per-node"
    yield CheckResult(
        asked.line, f"--gpus={total} on {nodes} nodes may give them unequal shares, such as 3 and 1", remedy
    )


def _check_time(case: Case) -> Iterator[CheckResult]:
    directive = case.script.find("--time")
    value = directive.value or "" if directive else ""
    minutes, colon, seconds = value.partition(":")
    if directive is not None and colon and seconds.isdecimal() and minutes in _HOURS:
        yield CheckResult(
            directive.line,
            f"--time={value} is {minutes} minutes and {seconds} seconds",
            f"for hours and minutes write {value}:00",
        )
    asked = case.request.asked.get("time")
    if asked is None:
        return
    match = re.search(r"(?:h_rt|walltime)=(\d+)(?![\d:])", asked.directive.value or "")
    if match and int(match[1]) < 600:
        yield CheckResult(
            asked.line, f"a bare number is seconds: {match[0]} is {match[1]} seconds", "write hours:minutes:seconds"
        )


def _check_minutes(case: Case) -> Iterator[CheckResult]:
    directive = case.script.find("--time")
    if directive is not None and (directive.value or "").isdecimal():
        yield CheckResult(
            directive.line, f"a bare number is minutes: {show_option(directive)} is {directive.value} minutes"
        )


def _check_directory(case: Case) -> Iterator[CheckResult]:
    script = case.script
    goes = re.search(r"^\s*cd\s|_O_WORKDIR\b", script.text, re.M) is not None
    if goes or not script.live or {"cwd", "directory"} & set(case.request.asked):
        return
    if script.language.home_warning and _needs_directory(case) and not _is_moved(case):
        message, remedy = script.language.home_warning
        is_directive = script.language.facts.prefix in remedy
        line = script.live[0].line if is_directive or not script.body else script.body[0][0]
        yield CheckResult(line, message, remedy)


def _needs_directory(case: Case) -> bool:
    """Whether something in the script lies where it was submitted, as far as names tell."""
    commands = [each for each in case.script.commands if not each.source.startswith("%")]  # ecFlow's own
    words = [word.text for command in commands for word in command.words]
    redirects = [text.lstrip("<>&|0123456789") for command in commands for text in command.redirects]
    return any(_RELATIVE.fullmatch(word) for word in (*words, *redirects))


def _is_moved(case: Case) -> bool:
    """NCI's PBS has a resource for it: `-l wd`."""
    return any(
        directive.option == "-l" and "wd" in (directive.value or "").split(",") for directive in case.script.live
    )


def _check_output_folder(case: Case) -> Iterator[CheckResult]:
    """The patterns of Slurm stay in the name: whoever looks for the directory knows what they may stand for."""
    for directive in filter(None, (case.script.find("--output", "-o"), case.script.find("--error", "-e"))):
        folder = (directive.value or "").rpartition("/")[0]
        if not folder or "$" in folder or (find_language(directive.scheduler).has_host_in_paths and ":" in folder):
            continue
        if case.has_file(folder) is False:
            made = "" if "%" in folder else f"mkdir -p {folder}"
            yield CheckResult(
                directive.line,
                f"the directory {folder} does not exist, and no scheduler creates it: the job fails without a message",
                made,
            )


def _check_array_output(case: Case) -> Iterator[CheckResult]:
    asked = case.request.asked.get("output")
    pattern = case.script.language.task_in_output
    if asked is None or "array" not in case.request.asked or pattern is None:
        return
    if not pattern.search(asked.directive.value or ""):
        yield CheckResult(asked.line, "all tasks of the array write to the same file, over each other")


def _check_many_tasks(case: Case) -> Iterator[CheckResult]:
    """Tasks that are asked for and never started."""
    request, script = case.request, case.script
    tasks = max(request.number("tasks") or 0, request.number("tasks_per_node") or 0)
    if tasks < 2 or not script.language.has_tasks or not script.containers or _STARTS.search(script.text):
        return
    line = request.line("tasks", "tasks_per_node")
    yield CheckResult(line, f"{tasks} tasks are requested, but nothing in the script starts more than one")


CHECKS = {
    "gpus-on-several-nodes": _check_total_gpus,
    "short-time": _check_time,
    "time-in-minutes": _check_minutes,
    "runs-in-home": _check_directory,
    "output-folder-missing": _check_output_folder,
    "array-one-output": _check_array_output,
    "tasks-not-started": _check_many_tasks,
}
