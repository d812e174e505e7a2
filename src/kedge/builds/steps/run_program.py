# SPDX-License-Identifier: BSD-3-Clause
"""Runs the program of a step in its tree, and explains it when it fails."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen, replace
from kedge.base.platform import Platform
from kedge.builds.request import StepLabel
from kedge.builds.states.build_place import COPIES, passing_folder
from kedge.builds.states.roots import StepWorkspace, copy_folder
from kedge.builds.step_values import CopyOrigin, InlineFile, RunStep, StepMount, refuse_recipe
from kedge.builds.steps.build_log import StepOutput
from kedge.builds.steps.session import BuildSession, read_secret
from kedge.cluster.host_memory import KillWatch, explain_memory, suggest_job
from kedge.compat.packages.constraints import PackageChange, list_replaced, read_pinned_names, render_constraints
from kedge.compat.packages.package import InstalledPackage
from kedge.compat.packages.python_packages import list_python_packages
from kedge.compat.packages.system_packages import list_conda_packages
from kedge.container.facts import Bind
from kedge.container.image_users import ImageUser, find_image_user
from kedge.container.processes.subordinate_ids import STEP_IDS
from kedge.container.start.build_step import StepFile, StepFolder, StepMemory, StepProgram, run_build_step
from kedge.errors import BuildFailed, KedgeError, NoMatchingPlatform, PackageReplaced, ProgramFailed, UsageError
from kedge.image.image_file import runs_here
from kedge.image.store.cache_mounts import CacheMounts
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explain, explained
from kedge.system.host.limits import read_limits
from kedge.system.owned_names import own_name
from kedge.system.process import describe_status

if TYPE_CHECKING:
    from kedge.builds.step_values import RecipePlace
    from kedge.system.views import View

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


# What `RUN --mount` asks for, as binds, file systems in memory and variables of one step.
#
# Files of secrets are in the memory of the step's container and in no directory of the host. No mount gets into a
# layer.

_SECRETS = "/run/secrets"
_AGENT_SOCKET = "/run/buildkit/ssh_agent.{}"


FolderFinder = Callable[[StepMount], Path]


@dataclass(slots=True)
class PreparedMounts:
    """What one step gets beside its root."""

    binds: list[Bind | StepFolder] = field(default_factory=list)
    memory: list[StepMemory | StepFile] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


class MountPreparation:
    """Makes the mounts of one step ready; `closing` undoes that."""

    def __init__(self, session: BuildSession, step: RunStep, user: ImageUser, closing: contextlib.ExitStack) -> None:
        self._session = session
        self._step = step
        self._closing = closing
        self._user = (user.uid, user.gid)
        self._private: Path | None = None
        self._agents = 0
        self.made = PreparedMounts()

    def add_script(self, script: InlineFile) -> None:
        """A file of the recipe that is there while the program runs."""
        self.made.binds.append(Bind(str(self._write(script.data, 0o755)), script.name, readonly=True))

    def add_text(self, text: str, target: str) -> None:
        """A file that kedge itself gives to the program."""
        self.made.binds.append(Bind(str(self._write(text.encode(), 0o644)), target, readonly=True))

    def add(self, mount: StepMount, find_folder: FolderFinder) -> None:
        """Add one mount; `find_folder` gives the files of its origin as a directory."""
        match mount.kind:
            case "bind":
                self._add_bind(mount, find_folder)
            case "cache":
                self._add_cache(mount, find_folder)
            case "tmpfs":
                self.made.memory.append(StepMemory(mount.target, mount.size))
            case "secret":
                self._add_secret(mount)
            case "ssh":
                self._add_agent(mount)
            case kind:
                raise refuse_recipe(self._step.place, f"RUN --mount=type={kind} is unknown")

    def _add_bind(self, mount: StepMount, find_folder: FolderFinder) -> None:
        source = find_folder(mount)
        if mount.is_readonly:
            self.made.binds.append(Bind(str(source), mount.target, readonly=True))
            return
        # a writable bind: what the program changes in it is thrown away
        place = self._session.workplace.settings.temporary_directory
        folder = self._closing.enter_context(passing_folder(place, COPIES))
        self._add_folder(copy_folder(source, folder / "copy"), mount)

    def _add_folder(self, path: Path, mount: StepMount) -> None:
        """A directory that the step's user may write to, as in all steps that have one user only."""
        if not path.is_dir():
            self.made.binds.append(Bind(str(path), mount.target))
            return
        owner = (mount.uid, mount.gid)
        self.made.binds.append(StepFolder(str(path), mount.target, *(owner if any(owner) else self._user)))

    def _add_cache(self, mount: StepMount, find_folder: FolderFinder) -> None:
        session = self._session
        caches = CacheMounts(session.store.layout)
        mode = 0o755 if mount.mode is None else mount.mode
        name = mount.id or mount.target
        opened = self._closing.enter_context(
            caches.open(name, mount.sharing, mode=mode, notify=session.workplace.progress.note)
        )
        if opened.is_new and mount.origin != CopyOrigin():
            _fill_cache(opened.path, find_folder(mount))
        if mount.is_readonly:
            self.made.binds.append(Bind(str(opened.path), mount.target, readonly=True))
        else:
            self._add_folder(opened.path, mount)

    def _add_secret(self, mount: StepMount) -> None:
        name = mount.id or Path(mount.target).name
        secret = self._session.find_secret(name)
        if secret is None:
            if mount.is_required:
                raise UsageError(
                    f"{self._step.place}: this step needs the secret '{name}'",
                    hint=f"give it with --secret id={name},src=FILE",
                )
            return
        value = read_secret(secret)
        if mount.variable:
            self.made.environment[mount.variable] = os.fsdecode(value.rstrip(b"\n"))
            if not mount.target:
                return
        mode = 0o400 if mount.mode is None else mount.mode
        target = mount.target or f"{_SECRETS}/{name}"
        self.made.memory.append(StepFile(target, value, mode))

    def _add_agent(self, mount: StepMount) -> None:
        socket = os.environ.get("SSH_AUTH_SOCK", "")
        if not self._session.request.ssh or not socket or not _is_socket(socket):
            if mount.is_required:
                raise UsageError(
                    f"{self._step.place}: this step needs an SSH agent",
                    hint="start one with 'eval $(ssh-agent)' and 'ssh-add', and build with --ssh default",
                )
            return
        target = mount.target or _AGENT_SOCKET.format(self._agents)
        self._agents += 1
        self.made.binds.append(Bind(socket, target))
        self.made.environment.setdefault("SSH_AUTH_SOCK", target)

    def _write(self, data: bytes, mode: int) -> Path:
        """A file for this step alone."""
        path = self._make_private() / str(len(self.made.binds))
        with explained(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            path.chmod(mode)
        return path

    def _make_private(self) -> Path:
        if self._private is None:
            self._private = self._session.place.make_folder("files")
            self._closing.callback(remove_tree, self._private)
        return self._private


def _fill_cache(place: Path, source: Path) -> None:
    """Put a copy of a directory in the place of an empty one, unless another build was faster."""
    copy = copy_folder(source, place.with_name(own_name("filling")))
    try:
        copy.rename(place)
    except OSError as problem:
        remove_tree(copy)
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise explain(problem, place) from problem


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False


# `--protect`: a build keeps the Python packages that its base ships.
#
# Before the first step the base's packages are frozen into a constraints file, which pip and uv get through variables;
# the file is bound into steps and is in no layer. After a step the packages are compared: a constraint does not stop
# `pip install --no-deps`, `setup.py install` or a step that unsets the variable.
#
# The engine calls `freeze_packages` with a view of the base, adds `Protection.extend_environment` to the environment of
# every step, binds a file with `Protection.text`, and calls `Protection.check` with a view of the tree after the step.
# `Protection.key` belongs to what a step's layer depends on.

CONSTRAINTS_PATH = "/run/kedge-constraints.txt"  # inside a step
_VARIABLES = ("PIP_CONSTRAINT", "UV_CONSTRAINT")
_LARGEST_FILE = 4 << 20
_SHOWN = 5


@frozen
class Protection:
    """The packages of a base as they were, and the pins that keep them."""

    packages: tuple[InstalledPackage, ...]
    text: str  # of the constraints file

    @property
    def key(self) -> str:
        """A digest of what is frozen: steps that ran with other constraints may have other results."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def extend_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables of a step with those that name the constraints; a file that the image names stays named.

        What the image's file for pip pins is not in ours, so uv gets both.
        """
        pip, uv = (environment.get(name, "").split() for name in _VARIABLES)
        words = (pip, [*uv, *pip])
        files = (dict.fromkeys(word for word in own if word != CONSTRAINTS_PATH) for own in words)
        named = {name: " ".join([*own, CONSTRAINTS_PATH]) for name, own in zip(_VARIABLES, files, strict=True)}
        return {**environment, **named}

    def check(self, view: View, place: RecipePlace, text: str) -> None:
        """Raise PackageReplaced if a package of the base is not what it was; `text` is the step as people write it."""
        replaced = list_replaced(self.packages, _list_protected(view))
        if replaced:
            raise _refuse(replaced, place, text)


def freeze_packages(view: View, environment: Mapping[str, str]) -> Protection:
    """Freeze the packages of a base; its PIP_CONSTRAINT names files that pin some of them already."""
    packages = tuple(_list_protected(view))
    pinned: list[str] = []
    for path in environment.get("PIP_CONSTRAINT", "").split():
        pinned += read_pinned_names((view.read(path, _LARGEST_FILE) or b"").decode("utf-8", "replace"))
    return Protection(packages, render_constraints(packages, pinned))


def _list_protected(view: View) -> list[InstalledPackage]:
    return [*list_python_packages(view), *list_conda_packages(view)]


def _refuse(replaced: list[PackageChange], place: RecipePlace, text: str) -> PackageReplaced:
    first, *others = replaced
    more = f", and {len(others)} more of the base's packages changed" if others else ""
    return PackageReplaced(
        f"{place}: {first}{more}; --protect keeps the packages of the base image",
        context={
            "file": place.file,
            "line": str(place.line),
            "step": text,
            "directory": first.place,
            **{str(number): str(change) for number, change in enumerate(replaced[:_SHOWN], 1) if others},
        },
        hint=f"choose a version that works with {first.name}=={first.before}, add --no-deps to keep dependencies out, "
        "or build without --protect",
    )
