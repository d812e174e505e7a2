# SPDX-License-Identifier: BSD-3-Clause
"""What Apptainer's users find in a container without asking (home, current folder, /tmp), for runtimes that differ."""

from __future__ import annotations

from dataclasses import dataclass, field

from kedge.container.facts import LIBRARIES, Bind, choose_home
from kedge.container.flags import list_names
from kedge.container.mounting import is_system_directory
from kedge.container.mounts.scratch import list_scratch
from kedge.container.others.request import RuntimeCall


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
