# SPDX-License-Identifier: BSD-3-Clause
"""The named containers of a user on this host: one small file each, which says who they are and where their logs lie.

A file is believed only as far as its process lives: whoever reads the directory removes what a crash or a reboot left.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from kedge.container.processes.rank_sharing import find_private_directory
from kedge.errors import InstanceProblem, UsageError
from kedge.system.files import explained, write_atomically
from kedge.system.owned_names import machine_name
from kedge.system.private_files import make_private
from kedge.system.settings import xdg_directory
from kedge.system.spawn import start_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Instance:
    """One of them."""

    name: str
    pid: int  # of its first process, or of who is starting it
    start: int  # when that process began: numbers are used again
    machine: str = field(default_factory=machine_name)  # this boot and process-id namespace
    state: str = "starting"  # or running
    image: str = ""  # as the user named it
    kind: str = "folder"
    log_out: str = ""
    log_err: str = ""
    since: float = field(default_factory=time.time)
    options: dict[str, object] = field(default_factory=dict)  # those that matter to programs that enter later
    overlay: str = ""  # the directory or image that keeps its changes
    passing: str = ""  # the root that was unpacked for it alone, to be removed after it

    @property
    def lives(self) -> bool:
        """Whether its process is there."""
        return self.machine == machine_name() and start_of(self.pid) == self.start


class InstanceDirectory:
    """Where the files are: below the user's state directory, by host name."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        host = os.uname().nodename.replace("/", "_") or "localhost"
        self.path = xdg_directory(environ, "XDG_STATE_HOME", ".local/state") / "instances" / host

    def logs_of(self, name: str) -> tuple[Path, Path]:
        """The files for standard output and standard error."""
        return self.path / f"{name}.out", self.path / f"{name}.err"

    def claim(self, instance: Instance) -> None:
        """Take the name; raises InstanceProblem when a living instance has it."""
        with explained(self.path):
            make_private(self.path)
        with _locked():
            found = self._read(instance.name)
            if found is not None and found.lives:
                raise InstanceProblem(
                    f"instance '{instance.name}' already exists (process {found.pid}, {found.state})",
                    hint=f"enter it: kedge shell instance://{instance.name}; "
                    f"stop it: kedge instance stop {instance.name}",
                )
            self.write(instance)

    def write(self, instance: Instance) -> None:
        """Write its file, whole or not at all."""
        with explained(self.path):
            write_atomically(self._file(instance.name), json.dumps(asdict(instance), indent=1).encode(), mode=0o600)

    def remove(self, instance: Instance) -> None:
        """Forget it, unless another has its name by now; the logs stay."""
        with _locked(), explained(self.path):
            found = self._read(instance.name)
            if found is not None and (found.pid, found.start) == (instance.pid, instance.start):
                self._file(instance.name).unlink(missing_ok=True)

    def list(self, pattern: str = "*") -> list[Instance]:
        """Return the instances that live, by name; `pattern` as for files. What is left of others is removed."""
        with contextlib.suppress(FileNotFoundError), explained(self.path), _locked():
            for path in self.path.glob("*.json"):
                found = self._read(path.stem)
                if found is None or not found.lives:
                    path.unlink(missing_ok=True)
        if not self.path.is_dir():
            return []
        names = sorted(path.stem for path in self.path.glob("*.json") if fnmatch.fnmatchcase(path.stem, pattern))
        instances = [self._read(name) for name in names]
        return [instance for instance in instances if instance is not None and instance.state == "running"]

    def find(self, name: str) -> Instance:
        """The running instance of that name; raises InstanceProblem when there is none."""
        check_name(name)
        found = self._read(name)
        if found is not None and found.lives and found.state == "running":
            return found
        others = ", ".join(instance.name for instance in self.list()) or "none"
        raise InstanceProblem(
            f"no instance '{name}' runs on {os.uname().nodename}", hint=f"running instances: {others}"
        )

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.json"

    def _read(self, name: str) -> Instance | None:
        """What the file says; None when there is none, or nothing that can be understood."""
        try:
            values = json.loads(self._file(name).read_bytes())
            known = {field.name: values[field.name] for field in fields(Instance) if field.name in values}
            found = Instance(**known)
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        is_sound = isinstance(found.pid, int) and isinstance(found.start, int) and found.name == name
        is_sound = is_sound and isinstance(found.passing, str)
        return found if is_sound and 0 < found.pid < 1 << 31 else None


def check_name(name: str) -> str:
    """The name, if it can be one."""
    if _NAME.fullmatch(name):
        return name
    raise UsageError(
        f"'{name}' is not a valid instance name",
        hint="use letters, digits, '.', '_' and '-', beginning with a letter or digit",
    )


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Lock out other writers on this host. The lock is in memory: homes often lie where locks do not work."""
    file = os.open(
        f"{find_private_directory()}/instances.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
