# SPDX-License-Identifier: BSD-3-Clause
"""--scratch and --workdir: directories for throw-away files, in memory or below a directory of the user's.

The names below --workdir are Apptainer's: tmp, var_tmp and home for --contain, scratch/PATH for each --scratch.
"""

from __future__ import annotations

import os

from kedge.container.facts import Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import HostFacts
    from kedge.container.options import RunOptions
    from kedge.errors import KedgeError


class _ScratchPlan:
    """What the two options come to."""

    def __init__(self) -> None:
        self.workdir = ""  # absolute; empty where none was given
        self.binds: list[Bind] = []  # directories below the work directory
        self.memory: list[str] = []  # destinations that get an empty file system in memory
        self.folders: list[tuple[str, int]] = []  # to be made on the host first: path and mode, parents first

    def make_folders(self) -> None:
        """Make what is missing on the host; raises FileProblem."""
        for path, mode in self.folders:
            try:
                _make_own_folder(path, mode)
            except OSError as problem:
                raise _problem(f"cannot create the directory {path}: {problem.strerror}") from None
            if not os.path.isdir(path) or (self._is_deep(path) and os.path.islink(path)):
                raise _problem(f"{path} is a file or symlink, and --workdir needs a directory there")

    def _is_deep(self, path: str) -> bool:
        """Whether it is in another scratch directory: a program in a container may have put it there, as a link too."""
        return path.startswith(f"{self.workdir}/scratch/") and "/" in path[len(f"{self.workdir}/scratch/") :]


def _make_own_folder(path: str, mode: int) -> None:
    """Make a directory with exactly these permissions; one that is there is left as it is."""
    before = os.umask(0)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    finally:
        os.umask(before)


def plan_scratch(options: RunOptions, host: HostFacts) -> _ScratchPlan:
    """Where scratch directories come from, and the directories that --contain finds below --workdir."""
    plan = _ScratchPlan()
    destinations = list_scratch(options)
    if not options.workdir:
        plan.memory = destinations
        return plan
    plan.workdir = _check_workdir(os.path.normpath(os.path.join(host.cwd, options.workdir)))
    if options.contain:
        has_home = not options.no_home and not options.home
        plan.folders += [(f"{plan.workdir}/{name}", 0o1777) for name in ("tmp", "var_tmp")]
        plan.folders += [(f"{plan.workdir}/home", 0o700)] if has_home else []
    for destination in destinations:
        place = f"{plan.workdir}/scratch"
        for name in ("", *destination.strip("/").split("/")):
            place = f"{place}/{name}" if name else place
            if (place, 0o750) not in plan.folders:
                plan.folders.append((place, 0o750))
        plan.binds.append(Bind(place, destination, origin="--scratch"))
    return plan


def list_scratch(options: RunOptions) -> list[str]:
    """The places in the container that --scratch names."""
    return [_check_destination(path) for text in options.scratch for path in text.split(",") if path]


def _check_destination(path: str) -> str:
    where = os.path.normpath(path)
    if not path.startswith("/") or ".." in path.split("/") or where.strip("/") == "":
        from kedge.errors import UsageError  # late: only when something is wrong

        raise UsageError(
            f"--scratch {path}: not an absolute path below / in the container",
            hint="for example --scratch /scratch; --workdir chooses the directory on the host",
        )
    return "/" + where.strip("/")


def _check_workdir(where: str) -> str:
    if not os.path.isdir(where):
        raise _problem(f"--workdir {where} is not a directory", hint=f"create it first: mkdir -p {where}")
    if not os.access(where, os.W_OK | os.X_OK):
        raise _problem(f"no write permission for --workdir {where}")
    return where


def _problem(message: str, hint: str = "choose another directory with --workdir") -> KedgeError:
    from kedge.errors import FileProblem  # late: only when something is wrong

    return FileProblem(message, hint=hint)
