# SPDX-License-Identifier: BSD-3-Clause
"""A step of a build: a program in a root that is put together from layers, which sees nothing else of the host.

It is `exec` in a child process, with a private /dev, /proc and process ids of its own, and no home, tmp or current
directory of the host. What the program writes is in the upper directory afterwards, and mount points are not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kedge.errors import MountFailed
from kedge.posix.kedge_child import OWN_FAILURE, read_error
from kedge.posix.process import relay_program
from kedge.posix.start_kedge import own_command
from kedge.runtime.command_line.binds import parse_bind
from kedge.runtime.facts import Bind
from kedge.runtime.mounts.step_points import StepPoints

_PREFIXES = ("KEDGE", "APPTAINER", "SINGULARITY")  # a user's wishes for containers are not for the steps of a build
_KEPT = ("KEDGE_NODEDIR", "KEDGE_SITE_CONFIG")
_OPTIONS = ("--fakeroot", "--contain", "--pid", "--ipc", "--no-home", "--no-umask", "--sharens=false")
_UNMOUNTED = ("tmp", "home", "cwd", "/etc/localtime")
_NAME_FILES = ("/etc/hosts", "/etc/resolv.conf")  # of no use without a network


@dataclass(frozen=True, slots=True)
class StepRoot:
    """The tree that a step runs in: layers over a base, or one directory that is written itself."""

    base: str  # a directory, which nothing changes where there is `changes`
    layers: tuple[str, ...] = ()  # directories in overlay form, lowest first
    changes: str = ""  # a directory for `upper`, which is the step's layer afterwards, and `work`; empty: write `base`

    @property
    def upper(self) -> str:
        """The directory with what the step changed."""
        return f"{self.changes}/upper" if self.changes else self.base


@dataclass(frozen=True, slots=True)
class StepMemory:
    """A file system in memory for a step: `RUN --mount=type=tmpfs`."""

    target: str
    size: int | None = None  # bytes
    mode: int = 0o1777


def run_build_step(
    root: StepRoot,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: str = "/",
    user: str = "",
    binds: Sequence[Bind | str] = (),
    memory: Sequence[StepMemory] = (),
    options: Sequence[str] = (),
    output: Callable[[bytes], None],
    stdin: bytes = b"",
    network: str = "",
    timeout: float | None = None,
    is_cancelled: Callable[[], bool] | None = None,
) -> int:
    """Run `argv` in the root; returns its status as a shell shows it. What it prints goes to `output` as it arrives.

    The program has the variables of `environment`, HOME of the image's passwd if that is not among them, and no others.
    `binds` are values, or texts as `--bind` takes them; `options` are further ones of `exec`, such as `--nv`. A failure
    of kedge itself is raised by its own class. When this call is interrupted, `is_cancelled` says so, or `output`
    raises, the program ends with all that it started.
    """
    step = {
        "environment": dict(environment),
        "layers": list(root.layers),
        "changes": root.changes,
        "user": user,
        "tmpfs": [[place.target, str(place.size or ""), f"{place.mode:o}"] for place in memory],
        "binds": [
            [bind.source, bind.destination, "ro" if bind.readonly else ""] for bind in binds if isinstance(bind, Bind)
        ],
        "parent": os.getpid(),
    }
    words = [*_OPTIONS, "--pwd", directory, "--no-mount", ",".join(_list_unmounted(network))]
    words += ["--network", "none"] if network == "none" else []
    words += [word for bind in binds if isinstance(bind, str) for word in ("--bind", bind)]
    request = {"options": [*words, *options], "base": root.base, "argv": list(argv), "step": step}
    if root.changes:
        for name in ("upper", "work"):
            os.makedirs(f"{root.changes}/{name}", exist_ok=True)
    with StepPoints(root.base, [] if root.changes else _list_points(binds, memory)):
        status, failure = _run_child(
            request, output, stdin=stdin, timeout=timeout, is_cancelled=is_cancelled, name=argv[0]
        )
    problem = read_error(failure) if status == OWN_FAILURE else None
    if problem is not None:
        raise problem
    return status


def can_overlay(root: StepRoot) -> str:
    """Why no step can run in the layers of this root here, so that one directory must do; empty where it can."""
    try:
        run_build_step(root, ["true"], environment={}, options=["--dry-run"], output=lambda _: None)
    except MountFailed as problem:
        return problem.context.get("tried", "") or problem.message
    return ""


def _list_points(binds: Sequence[Bind | str], memory: Sequence[StepMemory]) -> list[tuple[str, str]]:
    """What is mounted in the root, and whether it is a directory or a file."""
    points = [("/proc", "d"), ("/sys", "d"), ("/dev", "d"), *((path, "f") for path in _NAME_FILES)]
    points += [(place.target, "d") for place in memory]
    for bind in binds:
        for value in parse_bind(bind, "/") if isinstance(bind, str) else [bind]:
            points.append((value.destination, "d" if os.path.isdir(value.source) else "f"))
    return points


def _list_unmounted(network: str) -> tuple[str, ...]:
    return (*_UNMOUNTED, *_NAME_FILES) if network == "none" else _UNMOUNTED


def _run_child(
    request: Mapping[str, object],
    output: Callable[[bytes], None],
    *,
    stdin: bytes,
    timeout: float | None,
    is_cancelled: Callable[[], bool] | None,
    name: str,
) -> tuple[int, bytes]:
    """The status of `kedge build-step`, and what it says where kedge itself failed."""
    asking = make_memory_file(json.dumps(request).encode())
    telling, told = os.pipe()
    try:
        status = relay_program(
            own_command("build-step", str(asking), str(told)),
            output,
            stdin=stdin,
            environment=select_variables(os.environ),
            descriptors=(asking, told),
            timeout=timeout,
            is_cancelled=is_cancelled,
            name=name,
        )
    finally:
        os.close(asking)
        os.close(told)
        with open(telling, "rb") as stream:
            failure = stream.read()
    return status, failure


def make_memory_file(data: bytes) -> int:
    """An open file without a name that holds the bytes, to be read from its beginning."""
    file = os.memfd_create("kedge", os.MFD_CLOEXEC)
    with open(file, "wb", closefd=False) as stream:
        stream.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def select_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Our environment without what configures the containers of a user."""
    return {name: value for name, value in environ.items() if name in _KEPT or not name.startswith(_PREFIXES)}
