# SPDX-License-Identifier: BSD-3-Clause
"""The control groups of this process, version 1, version 2 and both at once, with all their ancestors.

A limit of an ancestor holds for its descendants, so each value is read along the whole way up to the mount point.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from kedge.base.frozen import frozen


@frozen
class Hierarchy:
    """One mounted tree of control groups and where we are in it; "" stands for version 2."""

    controllers: frozenset[str]
    version: int
    mount: Path
    group: PurePosixPath  # relative to the mount point

    def read_values(self, name: str) -> Iterator[tuple[Path, str]]:
        """The file `name` in our group and in each ancestor, nearest first, where it exists."""
        for group in (self.group, *self.group.parents):
            path = self.mount / group / name
            with contextlib.suppress(OSError):
                yield path, path.read_text(errors="replace").strip()


def read_hierarchies(root: Path = Path("/"), process: str = "self") -> list[Hierarchy]:
    """All hierarchies a process is in, this one unless another is named; none where /proc or the mounts are missing."""
    try:
        ours = (root / "proc" / process / "cgroup").read_text(errors="replace")
        mounts = (root / "proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return []
    groups = _parse_membership(ours)
    hierarchies = []
    for line in mounts.splitlines():
        mount = _parse_mount(line)
        if mount is None:
            continue
        kind, top, place, options = mount
        if kind == "cgroup2":
            path = groups.get("")
            controllers = frozenset[str]()
        else:
            controllers = frozenset(name for name in options.split(",") if name in groups)
            path = next((groups[name] for name in controllers), None)
        if path is not None:
            version = 2 if kind == "cgroup2" else 1
            hierarchies.append(Hierarchy(controllers, version, root / place.lstrip("/"), _relative(path, top)))
    return hierarchies


def _parse_membership(text: str) -> dict[str, str]:
    """Controller ("" for version 2) to path, from /proc/self/cgroup: `4:memory:/job`, `0::/job`."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for name in parts[1].split(","):
                groups[name.removeprefix("name=")] = parts[2]
    return groups


def _parse_mount(line: str) -> tuple[str, str, str, str] | None:
    """Type, root within the file system, mount point and super options of a cgroup mount, from mountinfo."""
    before, dash, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if not dash or len(left) < 6 or len(right) < 3 or right[0] not in ("cgroup", "cgroup2"):
        return None
    return right[0], left[3], left[4].replace("\\040", " "), right[2]


def _relative(path: str, top: str) -> PurePosixPath:
    """Our group below the mount point; the mount point itself where a container hides the way to it."""
    ours, mounted = PurePosixPath(path), PurePosixPath(top)
    if ".." not in ours.parts and ours.is_relative_to(mounted):
        return ours.relative_to(mounted)
    return PurePosixPath(".")


def find_least(
    hierarchies: list[Hierarchy], names: dict[int, tuple[str, ...]], controller: str
) -> tuple[int, Path] | None:
    """The smallest number in any of the files, by version: {2: ("memory.max",), 1: ("memory.limit_in_bytes",)}."""
    least: tuple[int, Path] | None = None
    for hierarchy in hierarchies:
        if hierarchy.version == 1 and controller not in hierarchy.controllers:
            continue
        for name in names.get(hierarchy.version, ()):
            for path, text in hierarchy.read_values(name):
                if text.isdecimal() and (least is None or int(text) < least[0]):
                    least = int(text), path
    return least
