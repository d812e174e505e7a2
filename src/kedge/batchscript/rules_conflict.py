# SPDX-License-Identifier: BSD-3-Clause
"""Options of sbatch that it refuses together, or alone; tried against sbatch 22.05."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.batchscript.directives import HETEROGENEOUS
from kedge.batchscript.findings import Case, CheckResult, ScriptRule, Severity
from kedge.batchscript.request import ScriptRequest

_GPUS = frozenset(("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket", "--gres"))
# an option, what it needs one of, and what to do
_NEEDS = (
    ("--gpus-per-task", ("--gpus", "--ntasks", "--ntasks-per-node", "--nodes"), "add --ntasks"),
    ("--gpus-per-socket", ("--sockets-per-node",), "add --sockets-per-node, or write --gpus-per-node"),
    ("--mem-per-gpu", tuple(sorted(_GPUS)), "ask for GPUs, or write --mem"),
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
    live = [each for each in case.script.live if each.scheduler == "slurm"]
    if case.script.scheduler != "slurm" or any(each.option in HETEROGENEOUS for each in live):
        return {}
    return {each.option: each.line for each in live}


RULES = (
    ScriptRule(
        "lonely-option",
        Severity.ERROR,
        "an option that sbatch takes beside others only: --gpus-per-task without --ntasks, --mem-per-gpu without GPUs",
        "add what it needs",
        _check_lonely,
    ),
    ScriptRule(
        "excluding-options",
        Severity.ERROR,
        "options that sbatch refuses together, such as --cpus-per-gpu and --cpus-per-task",
        "keep one of them",
        _check_exclusion,
    ),
    ScriptRule(
        "gpus-do-not-add-up",
        Severity.ERROR,
        "--gpus for the whole job that is not the sum of its nodes or tasks",
        "leave --gpus out, or correct it",
        _check_sums,
    ),
)
