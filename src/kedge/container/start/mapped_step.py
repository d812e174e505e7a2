# SPDX-License-Identifier: BSD-3-Clause
"""A step of a build that has all users of the image: those of /etc/subuid and /etc/subgid.

One process stays outside of the container, in the user namespace: when the step has ended, it lets all that was written
be the caller's (`processes/step_owners.py`). What is in the image already is shown with its owners
(`mounts/level_owners.py`).
"""

from __future__ import annotations

import os

from kedge.container.mounts.level_owners import find_owned
from kedge.container.processes.step_owners import KeptFolder, give_back, take_over
from kedge.container.processes.subordinate_ids import STEP_IDS
from kedge.container.processes.supervise import end_with_parent, go_on_in_child
from kedge.container.step_options import OWNERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.mounting import Layering
    from kedge.container.options import RunOptions
    from kedge.container.step_options import StepOptions


class MappedStep:
    """To be made before the namespaces are: where the image's owners cannot be shown, the step has one user."""

    def __init__(self, options: RunOptions, step: StepOptions) -> None:
        self._step = step
        self._kept: list[KeptFolder] = []
        self._owned = find_owned([options.image, *step.layers], STEP_IDS) if step.changes else None
        options.ignore_subuid = self._owned is None

    def go_on_inside(self, layering: Layering) -> None:
        """Called in the user namespace; returns in a child of this process, which is where the container is made."""
        layering.has_users, layering.owned = True, self._owned or ()
        end_with_parent(self._step.parent)
        try:
            self._begin()
        except OSError as problem:
            raise self._explain(problem) from problem
        own = os.getpid()
        go_on_in_child(lambda _: self._settle())
        self._step.parent = own

    def _begin(self) -> None:
        table = f"{self._step.changes}/{OWNERS}"
        if os.path.exists(table):  # a shell in a step that failed
            with open(table, "rb") as file:
                give_back(f"{self._step.changes}/upper", file.read())
            os.unlink(table)
        self._kept = [KeptFolder(str(path), (int(uid), int(gid))) for path, uid, gid in self._step.kept]

    def _settle(self) -> None:
        try:
            for folder in self._kept:
                folder.take_over()
            table = take_over(f"{self._step.changes}/upper")
            with open(f"{self._step.changes}/{OWNERS}", "wb") as file:
                file.write(table)
        except OSError as problem:
            raise self._explain(problem) from problem

    def _explain(self, problem: OSError) -> Exception:
        from kedge.system.files import explain  # late: only for an error

        return explain(problem, self._step.changes)
