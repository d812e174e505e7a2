# SPDX-License-Identifier: BSD-3-Clause
"""What a plan collects: mounts in their order, and the points for them that the image lacks."""

from __future__ import annotations

from kedge.posix.constants import MS_NODEV, MS_NOSUID
from kedge.runtime.mounts.operations import LATER, MAY, MUST, NEW, OLD, SESSION, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.posix.views import View
    from kedge.runtime.mounts.operations import Operation

GUARDED = MS_NOSUID | MS_NODEV
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")  # that every program may expect


class Points:
    """What is mounted where, in order; `operations` puts the making of missing mount points first."""

    def __init__(self, image: View) -> None:
        self.image = image
        self.mounts: list[Operation] = []
        self.wanted: dict[str, str] = {}  # destination: 'd' or 'f'
        self.covers: list[tuple[str, str]] = []  # what covers the image so far, and with what

    def want(self, destination: str, shape: str, *, by: str) -> str:
        """A place that must exist when `by` (bind or tmpfs) covers it; returns its path in the plan.

        What is covered already cannot be made in the image: it is made where it lies then, on the host too.
        """
        above = [kind for path, kind in self.covers if destination.startswith(path.rstrip("/") + "/")]
        if not above:
            self.wanted.setdefault(destination, shape)
        else:
            self.mounts.append(make_point(destination, shape, MUST if above[-1] == "tmpfs" else MAY))
        self.covers.append((destination, by))
        return NEW + destination

    def bind(self, source: str, destination: str, shape: str, *, flags: int = GUARDED, policy: str = MUST) -> None:
        """Let something of the host appear."""
        self.mounts.append(("bind", OLD + source, self.want(destination, shape, by="bind"), flags, policy))

    def bind_session(self, name: str, destination: str, shape: str = "f") -> None:
        """Let something that was made for this container appear."""
        target = self.want(destination, shape, by="bind")
        self.mounts.append(("bind", f"{SESSION}/{name}", target, GUARDED, WARN))

    def tmpfs(self, destination: str, size: int, mode: str) -> None:
        """An empty file system in memory."""
        options = f"mode={mode},size={size}" if size else f"mode={mode}"
        self.mounts.append(("tmpfs", self.want(destination, "d", by="tmpfs"), options, MUST))

    def add(self, *operations: Operation) -> None:
        """Anything else."""
        self.mounts += operations

    def missing(self) -> list[tuple[str, str]]:
        """Mount points that the image lacks, or has in the wrong shape."""
        return [(path, shape) for path, shape in self.wanted.items() if not self.image.kind(path)]


def make_point(path: str, shape: str, policy: str) -> Operation:
    """What makes a mount point."""
    return ("folder", NEW + path, 0o755, policy) if shape == "d" else ("file", NEW + path, policy)


class MountPlan:
    """What is done once the root is in its place, in two parts."""

    def __init__(self, points: Points, before: list[Operation], after: list[Operation]) -> None:
        self.missing = points.missing()
        # mount points, made in the layer above the image; those that cannot be made come from an underlay
        self.making = [make_point(path, shape, LATER) for path, shape in self.missing]
        self.rest: list[Operation] = [*before, *points.mounts, *after]
