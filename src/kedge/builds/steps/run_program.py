# SPDX-License-Identifier: BSD-3-Clause
"""Runs the program of a step in its tree, and explains it when it fails."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial

from kedge.base.frozen import frozen, replace
from kedge.base.platform import Platform
from kedge.builds.request import StepLabel
from kedge.builds.states.roots import StepWorkspace
from kedge.builds.step_values import RunStep
from kedge.builds.steps.build_log import StepOutput
from kedge.builds.steps.protect import CONSTRAINTS_PATH, Protection
from kedge.builds.steps.session import BuildSession
from kedge.builds.steps.step_mounts import FolderFinder, MountPreparation, PreparedMounts
from kedge.cluster.host_memory import KillWatch, explain_memory, suggest_job
from kedge.container.image_users import ImageUser, find_image_user
from kedge.container.processes.subordinate_ids import STEP_IDS
from kedge.container.start.build_step import StepProgram, run_build_step
from kedge.errors import BuildFailed, KedgeError, NoMatchingPlatform, ProgramFailed
from kedge.image.image_file import runs_here
from kedge.system.host.limits import read_limits
from kedge.system.process import describe_status

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "arm": "armv7l"}
_DISK_FULL = "No space left on device"
_NO_SUCH_ID = "Invalid argument"  # says chown of a number that a namespace does not know
_SHELL = ("/bin/sh", "-i")
_NETWORKS = {"default": "", "sandbox": "", "host": ""}


def run_in_workspace(
    session: BuildSession,
    step: RunStep,
    workspace: StepWorkspace,
    label: StepLabel,
    *,
    find_folder: FolderFinder,
    protection: Protection | None = None,
) -> None:
    """Run the program; raises BuildFailed unless it succeeds."""
    output = session.open_output(label)
    with contextlib.ExitStack() as closing:
        user = find_image_user(step.user, workspace.view()) if step.user else ImageUser(0, 0)
        mounts = MountPreparation(session, step, user, closing)
        for mount in step.mounts:
            mounts.add(mount, find_folder)
        if step.script is not None:
            mounts.add_script(step.script)
        environment = {**dict(step.proxies), **dict(step.environment), **mounts.made.environment}
        if protection is not None:
            mounts.add_text(protection.text, CONSTRAINTS_PATH)
            environment = protection.extend_environment(environment)
        program = StepProgram(step.argv, environment, step.directory, step.user, step.stdin)
        run = partial(_run, session, step, (workspace, mounts.made), maps_users=_may_map(session, user, mounts.made))
        watch = KillWatch()
        try:
            status = run(program, output.write)
        except ProgramFailed:
            session.cancellation.check()  # it was ended because another stage failed
            raise
        finally:
            output.finish()
        if not status:
            return
        death = describe_death(status, output.last, watch)
        problem = _explain_failure(session, step, (status, death), output, has_users=workspace.root.has_users)
        if session.request.shell_on_error:
            _open_shell(session, step, partial(run, replace(program, argv=_SHELL, stdin=b""), None))
        raise problem


def _run(
    session: BuildSession,
    step: RunStep,
    surroundings: tuple[StepWorkspace, PreparedMounts],
    program: StepProgram,
    output: Callable[[bytes], None] | None,
    *,
    maps_users: bool,
) -> int:
    workspace, mounts = surroundings
    return run_build_step(
        workspace.root,
        program,
        output,
        binds=[*mounts.binds, *session.request.binds],
        memory=mounts.memory,
        options=session.request.options,
        network=_NETWORKS.get(step.network, step.network),
        is_cancelled=session.cancellation.is_requested,
        maps_users=maps_users,
    )


def _may_map(session: BuildSession, user: ImageUser, mounts: PreparedMounts) -> bool:
    """Whether a step may have all users of the image, if the host has ids for them.

    Not where what they write would stay on this host, in a directory that the caller named, or where they must reach
    the caller's own files: an SSH agent answers nobody else.
    """
    is_theirs = session.request.binds or "--mount" in session.request.options
    is_ours = user.uid and "SSH_AUTH_SOCK" in mounts.environment
    return not is_theirs and not is_ours and max(user.uid, user.gid, *user.groups) < STEP_IDS


def _open_shell(session: BuildSession, step: RunStep, run: Callable[[], int]) -> None:
    """Let the user look around in the step that failed; what is changed there is thrown away."""
    progress = session.workplace.progress
    if not sys.stdin.isatty():
        progress.warn("--shell-on-error opens no shell: standard input is not a terminal")
        return
    session.cancellation.request()  # other stages have failed with this one
    leave_terminal = getattr(session.display, "close", None)  # one that draws has it
    if leave_terminal is not None:
        leave_terminal()
    progress.note(f"{step.place}: {_shorten(step.text)} failed; this shell is in its container, 'exit' ends it")
    try:
        run()
    except KedgeError as problem:
        progress.warn(f"cannot open a shell in the failed step: {problem.message}")


def refuse_other_machine(platform: Platform, step: RunStep) -> None:
    """Raise before a program of another architecture is started, unless an emulator is there for it."""
    host = Platform.host()
    machine = _MACHINES.get(platform.architecture, platform.architecture)
    if platform.architecture in (host.architecture, "unknown") or runs_here(machine, os.uname().machine):
        return
    raise NoMatchingPlatform(
        f"{step.place}: {_shorten(step.text)} needs a host that runs {platform.architecture} programs; "
        f"this one is {host.architecture}",
        context={"file": step.place.file, "line": str(step.place.line)},
        hint=f"build on a {platform.architecture} host, or leave --platform out",
    )


def _explain_failure(
    session: BuildSession, step: RunStep, end: tuple[int, StepDeath], output: StepOutput, *, has_users: bool
) -> BuildFailed:
    """The error for a program that failed."""
    status, death = end
    context = {"file": step.place.file, "line": str(step.place.line), "status": str(status), "step": step.text}
    if output.last:
        context["output"] = "\n".join(output.last)
    log = f"read the whole output in {session.log.path}, or " if session.log.path else ""
    if any(_DISK_FULL in line for line in output.last):
        log = f"free some space in {session.place.node.place}, or choose another disk with KEDGE_NODEDIR; {log}"
    if has_users and any(_NO_SUCH_ID in line for line in output.last):
        log = f"if it is about a user or group above {STEP_IDS - 1}, build with --ignore-subuid; {log}"
    if death.remedy:
        log = f"{death.remedy}; {log}"
    return BuildFailed(
        f"{step.place}: {_shorten(step.text)} {death.how}",
        context=context,
        hint=f"{log}build again with --shell-on-error to look around in the failed step",
    )


def _shorten(text: str) -> str:
    first = text.strip().split("\n", maxsplit=1)[0]
    return f"'{first[:100]}…'" if len(first) > 100 else f"'{first}'"


# How the program of a step ended, in words: its status, a signal, or that memory ran out, and what helps.
#
# The kernel counts the processes it killed for want of memory. Where the count cannot be read, the status and the last
# lines of the output say it: compilers report that one of their programs was killed, and end with an ordinary status.

_SIGKILL = 128 + 9
_SIGNS = re.compile(
    r"\bkilled signal terminated program|\bcannot allocate memory|\bout of memory|\bvirtual memory exhausted"
    r"|\bmemoryerror\b|\bbad_alloc\b|\boutofmemoryerror\b|\bsigkill\b|\b(died with|signal:?) 9\b|(^|[\s:)])killed$",
    re.IGNORECASE,
)
_FEWER = "let the step use fewer processes (make -j2, MAX_JOBS=2)"


@frozen
class StepDeath:
    """What an error says of it."""

    how: str  # follows the name of the step
    remedy: str = ""


def describe_death(status: int, lines: Iterable[str], watch: KillWatch) -> StepDeath:
    """The words for a status that is not 0; `watch` was made before the program began."""
    how = describe_status(status)
    if watch.has_seen_kills():
        return StepDeath(f"{how}: memory ran out, and the kernel killed a process of it ({_tell_limit()})", _advise())
    if status == _SIGKILL:
        cause = "memory ran out, or somebody or a watchdog of this host killed it"
        return StepDeath(f"{how}: {cause} ({_tell_limit()})", _advise())
    if any(_SIGNS.search(line.strip()) for line in lines):
        return StepDeath(f"{how}, probably because memory ran out ({_tell_limit()})", _advise())
    return StepDeath(how)


def _tell_limit() -> str:
    return explain_memory(read_limits())


def _advise() -> str:
    job = suggest_job()
    return f"{_FEWER}, or build in a job with more memory: {job}" if job else f"{_FEWER}, or build with more memory"
