# SPDX-License-Identifier: BSD-3-Clause
"""A start that failed: another runtime where namespaces are forbidden, else the error that says why."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kedge.container.mounting import OTHER_NAMESPACES
from kedge.container.start.namespace_errors import explain_refusal
from kedge.errors import CannotStart

if TYPE_CHECKING:
    from kedge.container.options import RunOptions
    from kedge.container.start.services import Say, Services

_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS, errno.EINVAL, errno.ENOSYS)


def leave_to_other_runtime(
    options: RunOptions, problem: OSError, say: Say, refused: str, services: Services
) -> NoReturn:
    """Use an installed setuid Apptainer, which needs no user namespaces; without one, say which setting forbids it."""
    if problem.errno not in _REFUSALS:
        # no memory, no more open files: nothing forbids it
        raise problem if Path("/proc/self").exists() else explain_refusal(problem, refused)
    refusal = explain_refusal(problem, refused)
    # inside a user namespace, which cannot be left any more, no setuid program gets its rights
    program = "" if options.dry_run or refused == OTHER_NAMESPACES else services.find_setuid_runtime()
    if not program:
        raise refusal
    say("warn", f"{refusal.message}; using {program} instead")
    options.runtime = program
    services.run_elsewhere(options, say)
    raise refusal


def explain_start(program: str, problem: OSError | None, machine: str) -> CannotStart:
    """The error for a program that could not be started, as Apptainer words the most frequent one."""
    where = problem.filename if problem is not None and isinstance(problem.filename, str) else ""
    if not where:
        name = f'"{program}": executable file not found in $PATH' if "/" not in program else f"{program} does not exist"
        return CannotStart(
            f"{name} (inside the container)",
            hint="list the image's programs: kedge exec IMAGE ls /usr/bin; "
            "if the image's entry point sets PATH: kedge run IMAGE PROGRAM",
        )
    assert problem is not None
    if problem.errno == errno.ENOEXEC:
        return CannotStart(
            f"{where} is neither a program for this CPU ({machine}) nor a script that begins with '#!'",
            hint="start a script with its interpreter: kedge exec IMAGE sh SCRIPT",
        )
    if problem.errno == errno.ENOENT:
        return CannotStart(
            f"{where} is in the container, but its interpreter or dynamic loader is missing",
            hint="check the first line of a script; a program for another C library cannot run in this image",
        )
    if problem.errno == errno.EACCES:
        return CannotStart(
            f"{where} cannot be executed: {problem.strerror}",
            hint="it has no execute permission, or its file system is mounted noexec",
        )
    if problem.errno == errno.E2BIG:
        return CannotStart(
            f"cannot start {where}: arguments and environment together are too long",
            hint="the limit is a quarter of 'ulimit -s'; --cleanenv shortens the environment",
        )
    if problem.errno == errno.EIO:
        return CannotStart(
            f"cannot read {where} from the image: {problem.strerror}",
            hint="the image, or the disk or network it is on, is damaged: pull or build the image again",
        )
    return CannotStart(
        f"cannot start {where}: {problem.strerror}",
        hint="'kedge exec --verbose' shows each step; --runtime apptainer shows whether another runtime can start it",
    )
