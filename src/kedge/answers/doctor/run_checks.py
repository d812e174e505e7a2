# SPDX-License-Identifier: BSD-3-Clause
"""Runs checks in parallel, each in a child process with a deadline. A check that hangs or crashes is a finding."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from kedge.answers.doctor.diagnosis import Diagnosis
from kedge.answers.doctor.surroundings import FAIL, LEVELS, SKIPPED, WARNING, Check, Finding, Surroundings
from kedge.base.frozen import as_dict, replace
from kedge.base.nearest import propose
from kedge.base.size import format_size
from kedge.errors import KedgeError, UsageError
from kedge.system.bounded_children import ANSWERED, LATE, REFUSED, BoundedTask, TaskOutcome, run_bounded
from kedge.system.host.limits import read_limits
from kedge.system.process import describe_status

TOTAL_SECONDS = 1.8  # for all checks: below two with the start of the program
_FAIR_SHARE = 0.5  # of the seconds that a check may take
_MACHINE = "the machine itself"
_DOCS = "kedge help doctor when-a-check-does-not-answer"


def list_checks() -> tuple[Check, ...]:
    """All checks in the order of the table; no check's module is imported."""
    return CHECKS


def run_checks(
    surroundings: Surroundings,
    names: Collection[str] | None = None,
    *,
    checks: Sequence[Check] | None = None,
    seconds: float = TOTAL_SECONDS,
) -> Diagnosis:
    """Run the checks called `names`, or all, within `seconds` in total, multiplied by `patience`."""
    began = time.monotonic()
    chosen = _choose(list_checks() if checks is None else checks, names)
    patience = surroundings.patience
    tasks = [BoundedTask(_MACHINE, partial(_describe, surroundings), 0.5 * patience)]
    for check in chosen:
        work = partial(_answer, check.name, partial(check.run, surroundings))
        tasks.append(BoundedTask(check.name, work, check.seconds * patience))
    import_checks({check.name for check in chosen if check in CHECKS})
    # the slowest first
    outcomes = run_bounded(sorted(tasks, key=lambda task: -task.seconds), seconds=seconds * patience)
    machine = _read_machine(outcomes.pop(_MACHINE))
    stretched = [replace(check, seconds=check.seconds * patience) for check in chosen]
    findings = [finding for check in stretched for finding in _read_outcome(check, outcomes[check.name])]
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
            hint = propose(name, known) or "list all checks: kedge doctor --list"
            raise UsageError(f"there is no check '{name}'", hint=hint)
    return [check for check in checks if check.name in names]


def _answer(name: str, work: Callable[[], list[Finding]]) -> bytes:
    """The answer of a child: its findings as JSON. An exception becomes a finding."""
    try:
        findings = work()
    except Exception as problem:
        findings = [_explain_problem(name, problem)]
    return json.dumps([as_dict(finding) for finding in findings]).encode()


def _explain_problem(name: str, problem: Exception) -> Finding:
    reason = problem.message if isinstance(problem, KedgeError) else f"{type(problem).__name__}: {problem}"
    return Finding(
        name,
        SKIPPED,
        f"could not be checked: {reason}"[:500],
        why="its state is unknown; the other checks are not affected",
        fix="if it happens again, report it and attach the file of 'kedge doctor --report FILE'",
        docs=_DOCS,
    )


def _describe(surroundings: Surroundings) -> bytes:
    return json.dumps(_describe_machine(surroundings)).encode()


def _read_machine(outcome: TaskOutcome) -> dict[str, str]:
    return json.loads(outcome.answer) if outcome.state == ANSWERED else {}


def _read_outcome(check: Check, outcome: TaskOutcome) -> list[Finding]:
    if outcome.state == ANSWERED:
        findings = [Finding(**fields) for fields in json.loads(outcome.answer)]
        return [finding for finding in findings if finding.level in LEVELS]
    if outcome.state == LATE:
        return [_explain_late(check, outcome.seconds)]
    if outcome.state == REFUSED:
        return [
            Finding(
                check.name,
                FAIL,
                "could not be checked: kedge cannot start another process or open another file",
                why="a limit on processes or open files is reached; containers and jobs cannot start programs either",
                fix="stop other programs; 'ulimit -u' and 'ulimit -n' show your limits, 'ps -u $USER' your processes",
                docs="kedge help doctor processes",
            )
        ]
    return [
        Finding(
            check.name,
            WARNING,
            f"its process {describe_status(outcome.status) if outcome.status else 'ended without an answer'}",
            why="a library of this host crashed during the check; programs that use it will crash, too",
            fix="tell the administrators and attach the file of 'kedge doctor --report FILE'",
            docs=_DOCS,
        )
    ]


def _explain_late(check: Check, seconds: float) -> Finding:
    again = f"kedge doctor --patience 5 --only {check.name}"
    if seconds < _FAIR_SHARE * check.seconds:  # it began too late to answer
        what, why = "not checked in time: other checks took too long", "its state is unknown"
        return Finding(check.name, SKIPPED, what, why=why, fix=again, docs=_DOCS)
    return Finding(
        check.name,
        WARNING,
        f"did not answer in {seconds:.2g} s",
        why="a file system, a driver or a server hangs or is very slow; programs that need it will hang, too",
        fix=f"try again: {again}. If it still does not answer, tell the administrators",
        docs=_DOCS,
    )


def _describe_machine(surroundings: Surroundings) -> dict[str, str]:
    """Describe host, system, kernel, CPUs, memory and user."""
    root = Path(surroundings.root)
    names = os.uname()
    limits = read_limits(root)
    memory = "unknown" if limits.memory is None else f"{format_size(limits.memory)} ({limits.memory_from})"
    return {
        "host": names.nodename,
        "system": _read_distribution(root),
        "kernel": f"{names.release} {names.machine}",
        "processors": f"{limits.cpus} ({limits.cpus_from})",
        "memory": memory,
        "user": f"{surroundings.environ.get('USER') or surroundings.environ.get('LOGNAME') or '-'} ({os.getuid()})",
    }


def _read_distribution(root: Path) -> str:
    """Read the distribution's name from os-release."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        with contextlib.suppress(OSError):
            for line in (root / name).read_text(errors="replace").splitlines():
                key, _, value = line.partition("=")
                if key == "PRETTY_NAME":
                    return value.strip().strip("\"'")
    return "unknown"


# The table of checks in the order of the output. A check's module is imported only for checks that run.
#
# Every check needs a heading of its name in docs/guides/doctor.md.


def _late(module: str, function: str) -> Callable[[Surroundings], list[Finding]]:
    """A check's function that imports its module when it is called: a broken or slow one costs only itself."""

    def run(surroundings: Surroundings) -> list[Finding]:
        loaded = getattr(importlib.import_module(f"kedge.answers.doctor.{module}"), function)
        return cast("Callable[[Surroundings], list[Finding]]", loaded)(surroundings)

    return run


# name, title, group, module, function; and how many seconds it may take, where that is not one
_ROWS: tuple[tuple[str | float, ...], ...] = (
    ("kernel", "kernel", "Containers", "containers", "check_kernel"),
    ("user-namespaces", "namespaces", "Containers", "containers", "check_user_namespaces"),
    ("outer-container", "outer container", "Containers", "containers", "check_outer_container"),
    ("overlay", "overlay", "Containers", "containers", "check_overlay"),
    ("fuse", "FUSE", "Containers", "containers", "check_fuse"),
    ("overlay-files", "overlays in files", "Containers", "containers", "check_overlay_files"),
    ("seccomp", "seccomp", "Containers", "containers", "check_seccomp"),
    ("setuid-programs", "setuid programs", "Containers", "containers", "check_new_privileges"),
    ("subordinate-ids", "subordinate ids", "Containers", "containers", "check_subordinate_ids"),
    ("gpu-driver", "GPU driver", "GPU", "gpu", "check_driver"),
    ("gpu-devices", "GPU devices", "GPU", "gpu", "check_devices"),
    ("gpu-answer", "GPU answer", "GPU", "gpu", "check_nvml", 1.7),
    ("gpu-libraries", "driver libraries", "GPU", "gpu", "check_libraries"),
    ("gpu-selection", "GPU selection", "GPU", "gpu", "check_selection"),
    ("cdi", "CDI", "GPU", "gpu", "check_cdi"),
    ("fabric", "fast network", "GPU", "gpu", "check_fabric"),
    ("mpi", "MPI", "Cluster", "cluster", "check_mpi"),
    ("site", "site", "Cluster", "cluster", "check_site"),
    ("scheduler", "scheduler", "Cluster", "cluster", "check_scheduler", 1.5),
    ("mpi-plugins", "MPI under srun", "Cluster", "cluster", "check_mpi_plugins", 1.5),
    ("accounts", "accounts", "Cluster", "cluster", "check_accounts", 1.5),
    ("shared-folders", "shared directories", "Cluster", "cluster", "check_shared_folders"),
    ("job-records", "records of jobs", "Cluster", "cluster", "check_job_records"),
    ("proxies", "proxies", "Network", "network", "check_proxies", 1.5),
    ("registries", "registries", "Network", "network", "check_registries", 1.5),
    ("certificates", "certificates", "Network", "network", "check_certificates"),
    ("credentials", "credentials", "Network", "network", "check_credentials"),
    ("logins", "logins", "Network", "network", "check_logins", 1.5),
    ("store", "store", "Storage", "storage", "check_store", 1.5),
    ("cached-images", "cached images", "Storage", "storage", "check_cached_images", 1.5),
    ("home", "home", "Storage", "storage", "check_home", 1.5),
    ("old-caches", "old caches", "Storage", "storage", "check_old_caches"),
    ("temporary", "temporary files", "Storage", "storage", "check_temporary"),
    ("node-place", "unpacked images", "Storage", "storage", "check_node_place"),
    ("shared-memory", "shared memory", "Storage", "storage", "check_shared_memory"),
    ("memory", "memory", "Environment", "environment", "check_memory"),
    ("processes", "processes", "Environment", "environment", "check_processes"),
    ("open-files", "open files", "Environment", "environment", "check_open_files"),
    ("locked-memory", "locked memory", "Environment", "environment", "check_locked_memory"),
    ("core-files", "core files", "Environment", "environment", "check_core_files"),
    ("clock", "clock", "Environment", "environment", "check_clock"),
    (
        *("compiled-modules", "kedge's modules", "Environment"),
        *("environment", "check_compiled_modules"),
    ),
    ("locale", "locale", "Environment", "environment", "check_locale"),
    ("python-leaks", "Python of this shell", "Environment", "environment", "check_python_leaks"),
    ("loader-leaks", "loader of this shell", "Environment", "environment", "check_loader_leaks"),
    ("variables", "variables", "Environment", "environment", "check_variables"),
    ("binds", "binds of variables", "Environment", "environment", "check_binds"),
    ("search-path", "PATH", "Environment", "environment", "check_search_path"),
)


def import_checks(names: Collection[str]) -> None:
    """Import the modules of checks once, before there are children: each of them would import what most of them need.

    One that cannot be imported is the finding of its own check.
    """
    modules = [f"kedge.answers.doctor.{row[3]}" for row in _ROWS if row[0] in names]
    for module in dict.fromkeys((*modules, "kedge.cluster.schedulers.recognised")):
        with contextlib.suppress(Exception):
            importlib.import_module(module)


CHECKS: tuple[Check, ...] = tuple(
    Check(str(row[0]), str(row[1]), str(row[2]), _late(str(row[3]), str(row[4])), float(row[5]) if row[5:] else 1.0)
    for row in _ROWS
)
