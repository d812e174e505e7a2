# SPDX-License-Identifier: BSD-3-Clause
"""A control group of its own for a container, made where this user was given a part of the tree.

Nobody stays to remove it when the container ends: an empty group costs nothing, and the next one removes it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from kedge.errors import RuntimeUnsuited
from kedge.system.host.cgroups import Hierarchy, read_hierarchies
from kedge.system.host.resource_request import ResourceRequest, Writes, plan_first, plan_second

_PREFIX = "kedge-"
_LIMITS = ("memory.max", "pids.max", "cpu.max")  # what a group of version 2 must leave open to be left
_PROPERTIES = {"memory": "MemoryMax", "pids-limit": "TasksMax"}  # what systemd-run calls them


def enter_limits(request: ResourceRequest, asked: Sequence[str], root: Path = Path("/")) -> list[Path]:
    """Put this process into groups with these limits; raises, and leaves nothing behind, where that cannot be."""
    hierarchies = read_hierarchies(root)
    second = next((hierarchy for hierarchy in hierarchies if hierarchy.version == 2), None)
    wanted = plan_first(request)
    firsts = {name: first for name in wanted if (first := _find_first(hierarchies, name)) is not None}
    made: list[Path] = []
    try:
        for controller, hierarchy in firsts.items():
            made.append(_make_first(hierarchy, controller, wanted[controller]))
        left = _leave_out(firsts, request) if len(firsts) < len(wanted) else {}
        if left:
            made.append(_make_second(second, left))
        for group in made:
            _write(group / "cgroup.procs", "0")
    except OSError as problem:
        for group in made:
            with contextlib.suppress(OSError):
                group.rmdir()
        raise _refuse(problem, asked) from None
    return made


def _leave_out(firsts: Container[str], request: ResourceRequest) -> Writes:
    """What version 2 has to do: the controllers that no tree of version 1 has."""
    old = {"io": "blkio"}
    return {name: writes for name, writes in plan_second(request).items() if old.get(name, name) not in firsts}


def _find_first(hierarchies: list[Hierarchy], controller: str) -> Hierarchy | None:
    return next(
        (hierarchy for hierarchy in hierarchies if hierarchy.version == 1 and controller in hierarchy.controllers), None
    )


def _make_first(hierarchy: Hierarchy, controller: str, writes: list[tuple[str, str]]) -> Path:
    parent = hierarchy.mount / hierarchy.group
    group = _make_group(parent)
    if controller == "cpuset":  # starts empty, and takes no process so
        for name in ("cpuset.cpus", "cpuset.mems"):
            _write(group / name, (parent / name).read_text().strip())
    return _fill(group, writes)


def _make_second(hierarchy: Hierarchy | None, writes: Writes) -> Path:
    """In our own group, or beside it: a group with processes cannot have groups with limits below it."""
    problem: OSError = FileNotFoundError(2, "this host has no control groups")
    for parent in _list_parents(hierarchy) if hierarchy is not None else ():
        try:
            _enable(parent, list(writes))
            return _fill(_make_group(parent), [write for group in writes.values() for write in group])
        except OSError as failure:
            problem = failure
    raise problem


def _list_parents(hierarchy: Hierarchy) -> Iterator[Path]:
    """Our group, and those above it as long as ours limits nothing: a container must not escape a job's limits."""
    for group in (hierarchy.group, *hierarchy.group.parents):
        path = hierarchy.mount / group
        yield path
        if not os.access(path.parent / "cgroup.procs", os.W_OK) or any(_is_limited(path / name) for name in _LIMITS):
            return


def _is_limited(path: Path) -> bool:
    try:
        return not path.read_text().startswith("max")
    except OSError:
        return False  # no such controller


def _enable(parent: Path, controllers: list[str]) -> None:
    """Let groups below have these controllers."""
    enabled = (parent / "cgroup.subtree_control").read_text().split()
    missing = [controller for controller in controllers if controller not in enabled]
    if missing:
        _write(parent / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in missing))


def _make_group(parent: Path) -> Path:
    for left in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # a container lives in it
            left.rmdir()
    group = parent / f"{_PREFIX}{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    return group


def _fill(group: Path, writes: list[tuple[str, str]]) -> Path:
    try:
        for name, text in writes:
            _write(group / name, text)
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise
    return group


def _write(path: Path, text: str) -> None:
    """Write to a file without creating it: one that is not there is a limit that the kernel does not know."""
    with path.open("r+") as file:
        file.write(text)


def _refuse(problem: OSError, asked: Sequence[str]) -> RuntimeUnsuited:
    flags = " ".join(f"--{limit.partition('=')[0]}" for limit in asked)
    where = f" ({problem.filename})" if problem.filename else ""
    return RuntimeUnsuited(
        f"{flags} cannot be applied: you may not create control groups on this host: {problem.strerror}{where}",
        context={"path": str(problem.filename or "")},
        hint=f"request it from the scheduler (srun --mem=8G --cpus-per-task=4), or: {_show_systemd(asked)}",
    )


def _show_systemd(asked: Sequence[str]) -> str:
    """Return the command for these limits by the user's systemd, which owns a part of the tree on most login nodes."""
    given = dict(limit.split("=", 1) for limit in asked if "=" in limit)
    properties = [f"{_PROPERTIES[name]}={value}" for name, value in given.items() if name in _PROPERTIES]
    if "cpus" in given:
        properties.append(f"CPUQuota={float(given['cpus']):.0%}")
    shown = " ".join(f"-p {shlex.quote(property_)}" for property_ in properties or ["MemoryMax=8G"])
    return f"systemd-run --user --scope {shown} kedge ..."
