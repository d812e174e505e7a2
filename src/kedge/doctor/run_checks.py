# SPDX-License-Identifier: BSD-3-Clause
"""Runs checks side by side, each in a child with a deadline: what hangs or breaks becomes a finding of its own."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from kedge.doctor.check_list import CHECKS
from kedge.doctor.diagnosis import Diagnosis
from kedge.doctor.finding import FAIL, LEVELS, SKIPPED, WARNING, Finding
from kedge.doctor.surroundings import Check, Surroundings
from kedge.errors import KedgeError, UsageError
from kedge.frozen import as_dict, replace
from kedge.host.limits import read_limits
from kedge.model.nearest import propose
from kedge.model.size import format_size
from kedge.posix.bounded_children import ANSWERED, LATE, REFUSED, BoundedTask, TaskOutcome, run_bounded
from kedge.posix.process import describe_status

TOTAL_SECONDS = 1.8  # all of it: with the start of the program that is below two
_FAIR_SHARE = 0.5  # of the seconds that a check may take
_MACHINE = "the machine itself"
_DOCS = "kedge help doctor when-a-check-does-not-answer"


def list_checks() -> tuple[Check, ...]:
    """Every check there is, in the order of the table; nothing is imported for that."""
    return CHECKS


def run_checks(
    surroundings: Surroundings,
    names: Collection[str] | None = None,
    *,
    checks: Sequence[Check] | None = None,
    seconds: float = TOTAL_SECONDS,
) -> Diagnosis:
    """Run the checks called `names`, or all; `seconds` bounds the whole of it, `patience` stretches it."""
    began = time.monotonic()
    chosen = _choose(list_checks() if checks is None else checks, names)
    patience = surroundings.patience
    tasks = [BoundedTask(_MACHINE, partial(_describe, surroundings), 0.5 * patience)]
    for each in chosen:
        work = partial(_answer, each.name, partial(each.run, surroundings))
        tasks.append(BoundedTask(each.name, work, each.seconds * patience))
    # those that may take long begin first
    outcomes = run_bounded(sorted(tasks, key=lambda task: -task.seconds), seconds=seconds * patience)
    machine = _read_machine(outcomes.pop(_MACHINE))
    stretched = [replace(each, seconds=each.seconds * patience) for each in chosen]
    findings = [finding for each in stretched for finding in _read_outcome(each, outcomes[each.name])]
    return Diagnosis(
        tuple(findings),
        tuple(chosen),
        {name: outcome.seconds for name, outcome in outcomes.items()},
        time.monotonic() - began,
        machine,
    )


def _choose(checks: Sequence[Check], names: Collection[str] | None) -> list[Check]:
    if not names:
        return list(checks)
    known = [check.name for check in checks]
    for name in names:
        if name not in known:
            hint = propose(name, known) or "'kedge doctor --list' names them all"
            raise UsageError(f"there is no check '{name}'", hint=hint)
    return [check for check in checks if check.name in names]


def _answer(name: str, work: Callable[[], list[Finding]]) -> bytes:
    """What a child says: its findings as JSON; a check that raises has one, which says so."""
    try:
        findings = work()
    except Exception as problem:
        findings = [_explain_problem(name, problem)]
    return json.dumps([as_dict(each) for each in findings]).encode()


def _explain_problem(name: str, problem: Exception) -> Finding:
    told = problem.message if isinstance(problem, KedgeError) else f"{type(problem).__name__}: {problem}"
    return Finding(
        name,
        SKIPPED,
        f"could not be checked: {told}"[:500],
        "nothing is known about it; the other checks are not touched by this",
        "if it happens again, report it with the file that 'kedge doctor --report FILE' writes",
        _DOCS,
    )


def _describe(surroundings: Surroundings) -> bytes:
    return json.dumps(_describe_machine(surroundings)).encode()


def _read_machine(outcome: TaskOutcome) -> dict[str, str]:
    return json.loads(outcome.answer) if outcome.state == ANSWERED else {}


def _read_outcome(check: Check, outcome: TaskOutcome) -> list[Finding]:
    if outcome.state == ANSWERED:
        findings = [Finding(**each) for each in json.loads(outcome.answer)]
        return [each for each in findings if each.level in LEVELS]
    if outcome.state == LATE:
        return [_explain_late(check, outcome.seconds)]
    if outcome.state == REFUSED:
        return [
            Finding(
                check.name,
                FAIL,
                "could not be checked: no further process can be started, or no file opened",
                "a limit on processes or open files is used up; containers and jobs cannot start programs either",
                "end other programs; 'ulimit -u' and 'ulimit -n' show your limits, 'ps -u $USER' what runs",
                "kedge help doctor processes",
            )
        ]
    return [
        Finding(
            check.name,
            WARNING,
            f"its process {describe_status(outcome.status) if outcome.status else 'ended without an answer'}",
            "a library of this machine crashed when it was asked; programs that use it will, too",
            "tell the administrators, with the file that 'kedge doctor --report FILE' writes",
            _DOCS,
        )
    ]


def _explain_late(check: Check, seconds: float) -> Finding:
    again = f"kedge doctor --patience 5 --only {check.name}"
    if seconds < _FAIR_SHARE * check.seconds:  # it began so late that its silence says nothing
        what, why = "had no time: other checks took all of it", "nothing is known about it"
        return Finding(check.name, SKIPPED, what, why, again, _DOCS)
    return Finding(
        check.name,
        WARNING,
        f"did not answer in {seconds:.2g} s",
        "a file system, a driver or a server hangs, or is very slow; what needs it will hang, too",
        f"try it once more: {again}. If it stays so, tell the administrators",
        _DOCS,
    )


def _describe_machine(surroundings: Surroundings) -> dict[str, str]:
    """Host, system, kernel, processor, memory and user of this process."""
    root = Path(surroundings.root)
    names = os.uname()
    limits = read_limits(root)
    memory = "not known" if limits.memory is None else f"{format_size(limits.memory)} ({limits.memory_from})"
    return {
        "host": names.nodename,
        "system": _read_distribution(root),
        "kernel": f"{names.release} {names.machine}",
        "processors": f"{limits.cpus} ({limits.cpus_from})",
        "memory": memory,
        "user": f"{surroundings.environ.get('USER') or surroundings.environ.get('LOGNAME') or '-'} ({os.getuid()})",
    }


def _read_distribution(root: Path) -> str:
    """The distribution's own name of itself, from os-release."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        with contextlib.suppress(OSError):
            for line in (root / name).read_text(errors="replace").splitlines():
                key, _, value = line.partition("=")
                if key == "PRETTY_NAME":
                    return value.strip().strip("\"'")
    return "not known"
