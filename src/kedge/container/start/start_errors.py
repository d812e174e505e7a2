# SPDX-License-Identifier: BSD-3-Clause
"""A start that failed: another runtime where namespaces are forbidden, else the error that says why."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kedge.container.mounting import OTHER_NAMESPACES
from kedge.errors import CannotStart, NamespaceRefused

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


# Why this host refuses namespaces or mounts: reads the settings that can forbid them, and names the remedy.

_NO_MOUNTS = (
    "user.max_mnt_namespaces or the limit of another namespace is 0 or used up",
    "end other containers, or an administrator can set: sysctl user.max_mnt_namespaces=15000",
)
_OTHER_RUNTIME = "or use another runtime: --runtime apptainer (a setuid Apptainer needs no user namespaces)"


def explain_refusal(problem: OSError, what: str, root: Path = Path("/")) -> NamespaceRefused:
    """The error for a namespace or mount that the kernel refused; `root` is `/`, elsewhere in tests."""
    if what == OTHER_NAMESPACES and problem.errno in (errno.ENOSPC, errno.EUSERS):
        cause, remedy = _NO_MOUNTS  # inside a user namespace /proc/sys/user shows its own limits, not the machine's
    else:
        cause, remedy = _find_cause(problem, root)
    context = {"refused": what, "kernel says": problem.strerror or str(problem)}
    return NamespaceRefused(
        f"cannot create a container on this host: {cause}", context=context, hint=f"{remedy}; {_OTHER_RUNTIME}"
    )


def _find_cause(problem: OSError, root: Path = Path("/")) -> tuple[str, str]:
    """The setting that forbids it and how it is changed, in words."""
    for check in (_check_proc, _check_chroot, _check_limit, _check_debian, _check_apparmor, _check_container):
        found = check(problem, root)
        if found is not None:
            return found
    if problem.errno == errno.EINVAL:
        return "the kernel is built without user namespaces", "ask for a kernel with CONFIG_USER_NS"
    return "the kernel refused, and no known setting explains why", "ask the administrators about user namespaces"


def _read_number(root: Path, name: str) -> int | None:
    try:
        return int((root / "proc/sys" / name).read_text())
    except (OSError, ValueError):
        return None


def _check_proc(problem: OSError, root: Path) -> tuple[str, str] | None:
    if problem.errno == errno.ENOENT and not (root / "proc/self").exists():
        return "/proc is not mounted, and user namespaces need it", "mount it first: mount -t proc proc /proc"
    return None


def _check_limit(problem: OSError, root: Path) -> tuple[str, str] | None:
    limit = _read_number(root, "user/max_user_namespaces")
    if limit == 0:
        return "user.max_user_namespaces is 0", "an administrator can set: sysctl user.max_user_namespaces=15000"
    mounts = _read_number(root, "user/max_mnt_namespaces")
    if mounts == 0:
        return "user.max_mnt_namespaces is 0", "an administrator can set: sysctl user.max_mnt_namespaces=15000"
    if problem.errno in (errno.ENOSPC, errno.EUSERS):
        return (
            f"all {limit or ''} user namespaces are in use, or they are nested too deep".replace("  ", " "),
            "end other containers, or an administrator can raise: sysctl user.max_user_namespaces",
        )
    return None


def _check_debian(_: OSError, root: Path) -> tuple[str, str] | None:
    if _read_number(root, "kernel/unprivileged_userns_clone") == 0:
        return (
            "kernel.unprivileged_userns_clone is 0",
            "an administrator can set: sysctl kernel.unprivileged_userns_clone=1",
        )
    return None


def _check_apparmor(_: OSError, root: Path) -> tuple[str, str] | None:
    if _read_number(root, "kernel/apparmor_restrict_unprivileged_userns") == 1:
        return (
            "AppArmor forbids it (kernel.apparmor_restrict_unprivileged_userns is 1, the default of Ubuntu 24.04)",
            "an administrator can give kedge's Python an AppArmor profile with 'userns,', or set: "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        )
    return None


def _check_container(problem: OSError, root: Path) -> tuple[str, str] | None:
    try:
        status = (root / "proc/self/status").read_text()
    except OSError:
        status = ""
    is_filtered = "Seccomp:\t2" in status
    is_inside = any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv", ".singularity.d"))
    if is_inside or (is_filtered and problem.errno in (errno.EPERM, errno.ENOSYS)):
        return (
            "kedge runs inside another container, whose rules forbid it",
            "start the outer container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
            "--security-opt systempaths=unconfined, or run kedge outside of it",
        )
    return None


def _check_chroot(problem: OSError, root: Path) -> tuple[str, str] | None:
    """Whether the root of this process is no mount, which the kernel asks of whoever makes namespaces.

    It could be bound onto itself first, but the host would see that mount, and keep it.
    """
    try:
        table = (root / "proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        table = ""
    # without a table only EINVAL tells: the kernel says EPERM for many reasons
    numbers = (errno.EPERM, errno.EINVAL) if table else (errno.EINVAL,)
    if problem.errno in numbers and not any(line.split()[4:5] == ["/"] for line in table.split("\n")):
        return (
            "kedge runs in a chroot, where the kernel creates no user namespaces",
            "leave the chroot, or enter it with pivot_root instead",
        )
    return None
