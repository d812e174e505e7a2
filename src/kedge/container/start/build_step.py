# SPDX-License-Identifier: BSD-3-Clause
"""A step of a build: a program in a root that is put together from layers, which sees nothing else of the host.

It is `exec` in a child process, with a private /dev, /proc and process ids of its own, and no home, tmp or current
directory of the host. What the program writes is in the upper directory afterwards, and mount points are not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

from kedge.base.frozen import NOTHING, frozen
from kedge.container.facts import Bind
from kedge.container.flags import parse_bind
from kedge.container.mounts.step_points import StepPoints
from kedge.container.step_options import OWNERS
from kedge.errors import MountFailed, NamespaceRefused
from kedge.system.kedge_child import OWN_FAILURE, read_error
from kedge.system.process import make_memory_file, relay_program, run_program
from kedge.system.start_kedge import own_start_command

_PREFIXES = ("KEDGE", "APPTAINER", "SINGULARITY")  # a user's wishes for containers are not for the steps of a build
_KEPT = ("KEDGE_NODEDIR", "KEDGE_SITE_CONFIG")
_OPTIONS = (
    "--fakeroot",
    "--contain",
    "--pid",
    "--ipc",
    "--uts",
    "--no-home",
    "--no-umask",
    "--sharens=false",
)
_UNMOUNTED = ("tmp", "home", "cwd", "/etc/localtime")
_NAME_FILES = ("/etc/hosts", "/etc/resolv.conf")  # of no use without a network


@frozen
class StepRoot:
    """The tree that a step runs in: layers over a base, or one directory that is written itself."""

    base: str  # a directory, which nothing changes where there is `changes`
    layers: tuple[str, ...] = ()  # directories in overlay form, lowest first
    # a directory for `upper`, which is the step's layer afterwards, `work` and `owners`; empty: write `base`
    changes: str = ""

    @property
    def upper(self) -> str:
        """The directory with what the step changed."""
        return f"{self.changes}/upper" if self.changes else self.base

    @property
    def owners(self) -> str:
        """The table of whose these files are, where the step had all users of the image."""
        return f"{self.changes}/{OWNERS}"

    @property
    def has_users(self) -> bool:
        """Whether it had them."""
        return bool(self.changes) and os.path.exists(self.owners)


@frozen
class StepMemory:
    """A file system in memory for a step: `RUN --mount=type=tmpfs`."""

    target: str
    size: int | None = None  # bytes
    mode: int = 0o1777


@frozen
class StepFile:
    """A read-only file in memory that this step alone has, and no directory of the host: a secret."""

    target: str
    data: bytes
    mode: int = 0o400


@frozen
class StepFolder:
    """A directory of the caller's that the program may write to, and that is there after the step."""

    source: str
    target: str
    uid: int = 0  # of the image: whose it is in the step, where there are other users than root
    gid: int = 0


@frozen
class StepProgram:
    """What runs in a step. It has these variables, HOME of the image's passwd if that is not among them, no others."""

    argv: Sequence[str]
    environment: Mapping[str, str] = NOTHING
    directory: str = "/"
    user: str = ""  # USER[:GROUP] of the image, names or numbers; empty: root
    stdin: bytes = b""


@frozen
class StepContext:
    """What a script with the programs of this host sees of it beside them."""

    folder: str = "/"  # where it starts
    shown: tuple[tuple[str, int, int], ...] = ()  # directories, read-only: path, device and inode
    hidden: tuple[str, ...] = ()  # what is empty in them


def run_build_step(
    root: StepRoot,
    program: StepProgram,
    output: Callable[[bytes], None] | None,
    *,
    binds: Sequence[Bind | StepFolder | str] = (),
    memory: Sequence[StepMemory | StepFile] = (),
    options: Sequence[str] = (),
    network: str = "",
    context: StepContext | None = None,
    timeout: float | None = None,
    is_cancelled: Callable[[], bool] | None = None,
    maps_users: bool = False,
) -> int:
    """Run a program in the root; returns its status as a shell shows it. What it prints goes to `output` as it comes;
    where that is None, the program has our own terminal.

    With `maps_users` the program has all users of the image, where the host gives the caller subordinate ids; whose the
    files in `upper` are is then in the table `owners` beside it. Else root is the only user, and owners are noted in an
    attribute (`processes/owner_recorder.py`). Either way all files are the caller's when the step has ended.

    `binds` are values, or texts as `--bind` takes them; `options` are further ones of `exec`, such as `--nv`; `network`
    is default, host or none; `context` is for `run_host_script`. A failure of kedge itself is raised by its own class.
    When this call is interrupted, `is_cancelled` says so, or `output` raises, the program ends with all it started.
    """
    kept = [bind for bind in binds if isinstance(bind, StepFolder)]
    shown = [Bind(bind.source, bind.target) if isinstance(bind, StepFolder) else bind for bind in binds]
    step = {
        "environment": dict(program.environment),
        "layers": list(root.layers),
        "changes": root.changes,
        "user": program.user,
        "kept": [[folder.source, folder.uid, folder.gid] for folder in kept],
        **_describe_memory(memory),
        "binds": [
            [bind.source, bind.destination, "ro" if bind.readonly else ""] for bind in shown if isinstance(bind, Bind)
        ],
        **_describe_context(context),
        "parent": os.getpid(),
    }
    words = [*_OPTIONS, "--pwd", program.directory, "--no-mount", ",".join(_list_unmounted(network))]
    words += ["--network", "none"] if network == "none" else []
    words += [word for bind in shown if isinstance(bind, str) for word in ("--bind", bind)]
    words += options
    request = {"options": words, "base": root.base, "argv": list(program.argv), "step": step}
    if root.changes:
        _make_changes(root.changes)
    child = _StepChild(request, program, timeout, is_cancelled)
    with StepPoints(root.base, [] if root.changes else _list_points(shown, memory, network)):
        if maps_users and root.changes:
            try:
                return child.run(output)
            except NamespaceRefused:
                pass  # one of the two programs gave ids and the other did not: there is no way out of that namespace
        words.append("--ignore-subuid")
        return child.run(output)


def _make_changes(folder: str) -> None:
    """The directories of an overlay: open to all users of the image, and of the caller's own group."""
    for name in ("upper", "work"):
        path = f"{folder}/{name}"
        if not os.path.isdir(path):
            os.makedirs(path)
            os.chown(path, -1, os.getgid())  # where the directory above has another group and gives it to all below
            os.chmod(path, 0o755)


def can_overlay(root: StepRoot) -> str:
    """Why no step can run in the layers of this root here, so that one directory must do; empty where it can."""
    try:
        run_build_step(root, StepProgram(["true"]), lambda _: None, options=["--dry-run"])
    except MountFailed as problem:
        return problem.context.get("tried", "") or problem.message
    return ""


def _describe_context(context: StepContext | None) -> dict[str, object]:
    if context is None:
        return {}
    shown = [list(place) for place in sorted(context.shown)]  # those above come first
    return {"context": context.folder, "shown": shown, "hidden": list(context.hidden)}


def _describe_memory(memory: Sequence[StepMemory | StepFile]) -> dict[str, list[list[str]]]:
    """What is in memory, for the child."""
    folders = [place for place in memory if isinstance(place, StepMemory)]
    files = [place for place in memory if isinstance(place, StepFile)]
    return {
        "tmpfs": [[place.target, str(place.size or ""), f"{place.mode:o}"] for place in folders],
        "files": [[place.target, os.fsdecode(place.data), f"{place.mode:o}"] for place in files],
    }


def _list_points(
    binds: Sequence[Bind | str], memory: Sequence[StepMemory | StepFile], network: str
) -> list[tuple[str, str]]:
    """What is mounted in the root, and whether it is a directory or a file."""
    points = [("/proc", "d"), ("/sys", "d"), ("/dev", "d")]
    points += [(path, "f") for path in _NAME_FILES if network != "none"]
    points += [(place.target, "d" if isinstance(place, StepMemory) else "f") for place in memory]
    for bind in binds:
        for value in parse_bind(bind, "/") if isinstance(bind, str) else [bind]:
            points.append((value.destination, "d" if os.path.isdir(value.source) else "f"))
    return points


def _list_unmounted(network: str) -> tuple[str, ...]:
    return (*_UNMOUNTED, *_NAME_FILES) if network == "none" else _UNMOUNTED


class _StepChild:
    """`kedge build-step` with one request."""

    def __init__(
        self,
        request: Mapping[str, object],
        program: StepProgram,
        timeout: float | None,
        is_cancelled: Callable[[], bool] | None,
    ) -> None:
        self._request = request
        self._program = program
        self._timeout = timeout
        self._is_cancelled = is_cancelled
        self._failure = b""  # what it said where kedge itself failed

    def run(self, output: Callable[[bytes], None] | None) -> int:
        """Its status; raises where kedge itself failed."""
        status = self._run(output)
        problem = read_error(self._failure) if status == OWN_FAILURE else None
        if problem is not None:
            raise problem
        return status

    def _run(self, output: Callable[[bytes], None] | None) -> int:
        asking = make_memory_file(json.dumps(self._request).encode())
        telling, told = os.pipe()
        command, environment = own_start_command("build-step", str(asking), str(told)), select_variables(os.environ)
        try:
            if output is None:
                done = run_program(
                    command, environment=environment, check=False, capture=False, descriptors=(asking, told)
                )
                return done.status
            return relay_program(
                command,
                output,
                stdin=self._program.stdin,
                environment=environment,
                descriptors=(asking, told),
                timeout=self._timeout,
                is_cancelled=self._is_cancelled,
                name=self._program.argv[0],
            )
        finally:
            os.close(asking)
            os.close(told)
            with open(telling, "rb") as stream:
                self._failure = stream.read()


def select_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Our environment without what configures the containers of a user."""
    return {name: value for name, value in environ.items() if name in _KEPT or not name.startswith(_PREFIXES)}
