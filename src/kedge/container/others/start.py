# SPDX-License-Identifier: BSD-3-Clause
"""What runtimes that know nothing of `/.singularity.d` are told to start: the same program, in the same environment
and directory, that kedge itself would start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kedge.container.env_scripts import collect_requests
from kedge.container.environment.action_script import ACTION
from kedge.container.facts import LIBRARIES, Bind, choose_home
from kedge.container.flags import list_names
from kedge.container.mounting import is_system_directory
from kedge.container.mounts.scratch import list_scratch
from kedge.container.others.request import ForeignPlan, RuntimeCall
from kedge.container.payload import plan_payload

# Variables of the user that a runtime's own program, or the shell or loader under it, would take for itself.
_PROGRAMS_OWN = frozenset(
    (
        *("HOME", "PATH", "TMPDIR", "USER", "LOGNAME", "SHELL", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS"),
        *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "GLIBC_TUNABLES"),
    )
)
_PROGRAMS_PREFIXES = ("LD_", "ENROOT_", "CH_", "CONTAINERS_", "PODMAN", "PYTHON")


@dataclass(slots=True)
class Started:
    """The program and its environment, and the directory that it begins in.

    What an image or a device wrote is spelled out: in the environment of the runtime's own program it would tell that
    program what to do on this host.
    """

    argv: list[str]
    folder: str
    inherited: dict[str, str] = field(default_factory=dict)  # may stand in the environment of the runtime's program
    spelled: dict[str, str] = field(default_factory=dict)  # must be said: not for the program itself

    @property
    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({*self.inherited, *self.spelled})

    def drop(self, names: Iterable[str]) -> None:
        """Leave these out."""
        for name in names:
            self.inherited.pop(name, None)
            self.spelled.pop(name, None)


def plan_start(request: RuntimeCall, mounts: Mounts, plan: ForeignPlan) -> Started:
    """Return what is to be started; says on the way what there is to say about it."""
    options, facts = request.options, request.image.facts
    payload = plan_payload(options, request.host, facts, request.additions, request.binds)
    plan.notes += [*request.additions.warnings, *payload.warnings]
    plan.details += [*request.additions.notes, *payload.notes]
    argv = list(payload.argv)
    plan.is_idle = not argv
    if argv and "/" not in argv[0]:
        argv[0] = next(
            (path for folder in payload.search if facts.view.is_executable(path := f"{folder}/{argv[0]}")), argv[0]
        )
    started = Started(argv, options.pwd or payload.workdir or _choose_folder(request, mounts))
    asked = collect_requests(options, request.host, [])
    for name, value in payload.environ.items():
        if name == "PWD":
            continue  # every runtime sets it itself
        is_own = name in _PROGRAMS_OWN or name.startswith(_PROGRAMS_PREFIXES)
        is_users = name in asked or request.host.environ.get(name) == value or name.startswith(ACTION)
        (started.inherited if is_users and not is_own else started.spelled)[name] = value
    return started


def _choose_folder(request: RuntimeCall, mounts: Mounts) -> str:
    """The current directory where it is inside as well, else the home directory, else the root."""
    view = request.image.facts.view
    wanted = [mounts.home] if request.options.contain else [request.host.cwd, mounts.home]
    for folder in wanted:
        if view.kind(folder) == "d" or folder in mounts.empty or _is_bound(folder, mounts):
            return folder
    return "/"


def _is_bound(folder: str, mounts: Mounts) -> bool:
    return any(folder == bind.destination or folder.startswith(bind.destination + "/") for bind in mounts.binds)


def merge_environment(program: Mapping[str, str], started: Started) -> dict[str, str]:
    """The environment for the runtime's program: its own, and what the container is to inherit from it."""
    return {**program, **started.inherited}


# What Apptainer's users find in a container without asking (home, current folder, /tmp), for runtimes that differ.


@dataclass(slots=True)
class Mounts:
    """In this order: empty directories in memory, then what is bound."""

    home: str  # where the home directory is inside
    empty: list[str] = field(default_factory=list)
    binds: list[Bind] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_mounts(request: RuntimeCall) -> Mounts:
    """Everything to mount; devices are the runtime's business."""
    options, host = request.options, request.host
    absent = set(list_names(options.no_mount))
    source, home = choose_home(options, host)
    mounts = Mounts(home)
    _add_temporary(request, mounts, absent)
    is_wanted = not (options.contain or options.no_home or "home" in absent) and host.view.kind(source) == "d"
    if options.home or is_wanted:
        mounts.binds.append(Bind(source, home, origin="--home"))
    elif options.contain and not options.no_home:
        mounts.empty.append(home)
    if not options.contain and "cwd" not in absent and _is_bound_folder(host.cwd, mounts.binds):
        mounts.binds.append(Bind(host.cwd, host.cwd, origin="the current directory"))
    mounts.empty += list_scratch(options)
    mounts.binds += request.binds
    mounts.binds += [Bind(file, f"{LIBRARIES}/{name}", readonly=True) for file, name in request.additions.libraries]
    mounts.binds += request.additions.binds
    mounts.binds = [bind for bind in mounts.binds if not bind.is_optional or host.view.kind(bind.source)]
    others = sorted(absent - {"home", "cwd", "tmp"})
    if others:
        mounts.notes.append(f"--no-mount {','.join(others)} is ignored: only home, cwd and tmp can be left out")
    return mounts


def _add_temporary(request: RuntimeCall, mounts: Mounts, absent: set[str]) -> None:
    for folder in ("/tmp", "/var/tmp"):
        if request.options.contain:
            mounts.empty.append(folder)
        elif "tmp" not in absent:
            mounts.binds.append(Bind(folder, folder, is_optional=True))


def _is_bound_folder(cwd: str, binds: list[Bind]) -> bool:
    """Whether the current directory is bound: not a system's directory, and not inside what is bound already."""
    if is_system_directory(cwd):
        return False
    return not any(
        bind.source == bind.destination and (cwd == bind.source or cwd.startswith(bind.source + "/")) for bind in binds
    )
