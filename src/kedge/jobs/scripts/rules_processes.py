# SPDX-License-Identifier: BSD-3-Clause
"""Rules about how many processes a script starts on the GPUs of a node."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.base.shell_text import Command
from kedge.cluster.launchers.known import list_launchers
from kedge.jobs.scripts.findings import Case, CheckResult
from kedge.jobs.scripts.variables import find_values, resolve_word

# one process per GPU is what these are for
_OF_TORCH = re.compile(r"(?<!\S)['\"]?(--nproc[_-]per[_-]node)[= ]+(\d+)(?![\w.])")
# ranks per node, of Open MPI and of MPICH and its kin
_OF_MPI = re.compile(r"(?<!\S)(--?npernode|--?ppn|-perhost|-N|--map-by ppr)[=: ]+(\d+)(?![\w.])(?::node)?")
_STEP = re.compile(r"--(?:gpus|gres|tres)\b|--gpus-per|-G")  # a step that asks for GPUs of its own
_CHOSEN = re.compile(r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=|\bNVIDIA_VISIBLE_DEVICES=")


def _check_processes(case: Case) -> Iterator[CheckResult]:
    gpus = _count_gpus(case)
    if not gpus or _CHOSEN.search(case.script.text):
        return
    values = find_values(case.script.commands)
    for command in case.script.commands:
        words = [resolve_word(word, values) or word.text for word in command.words]
        if command.end != "&" and not any(map(_STEP.match, words)):
            yield from _compare(case, command, words, gpus)


def _compare(case: Case, command: Command, words: list[str], gpus: int) -> Iterator[CheckResult]:
    text = " ".join(words)
    if match := _OF_TORCH.search(text):
        count = int(match[2])
        if count > gpus:
            said = f"{match[1]} {count} starts more processes than the {gpus} GPUs of each node"
            yield CheckResult(command.line, said, f"write {match[1]} {gpus}{_or_request(case, count)}")
    elif (match := _OF_MPI.search(text)) and _is_mpirun(words):
        count = int(match[2])
        if count == 1:
            return  # one that starts the others, or threads
    else:
        return
    if 0 < count < gpus:
        unless = "" if match.re is _OF_TORCH else ", unless each rank uses several"
        said = f"{match[1]} {count} leaves {gpus - count} of the {gpus} GPUs of each node idle{unless}"
        yield CheckResult(command.line, said, f"write {match[1]} {gpus}{_or_request(case, count)}")


def _is_mpirun(words: list[str]) -> bool:
    return any(word.rpartition("/")[2] in list_launchers("library") for word in words)


def _or_request(case: Case, count: int) -> str:
    return f", or request {count} GPU{'s' if count > 1 else ''} per node" if case.request.wants_gpus else ""


def _count_gpus(case: Case) -> int:
    """The GPUs of each node that the job gets; 0 where none, or where nobody knows."""
    if case.request.wants_gpus:
        return case.request.gpus_per_node or 0
    return (case.queue.gpus_per_node or 0) if case.queue is not None and case.has_gpus_unasked else 0


CHECKS = {
    "processes-and-gpus": _check_processes,
}
