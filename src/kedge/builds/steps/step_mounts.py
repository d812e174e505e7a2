# SPDX-License-Identifier: BSD-3-Clause
"""What `RUN --mount` asks for, as binds, file systems in memory and variables of one step.

Files of secrets are in the memory of the step's container and in no directory of the host. No mount gets into a layer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kedge.builds.states.build_place import COPIES, passing_folder
from kedge.builds.states.roots import copy_folder
from kedge.builds.step_values import CopyOrigin, InlineFile, RunStep, StepMount, refuse_recipe
from kedge.builds.steps.session import BuildSession, read_secret
from kedge.container.facts import Bind
from kedge.container.image_users import ImageUser
from kedge.container.start.build_step import StepFile, StepFolder, StepMemory
from kedge.errors import UsageError
from kedge.image.store.cache_mounts import CacheMounts
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explain, explained
from kedge.system.owned_names import own_name

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
