# SPDX-License-Identifier: BSD-3-Clause
"""A step of a build that has all users of the image: those of /etc/subuid and /etc/subgid.

One process stays outside of the container, in the user namespace: when the step has ended, it lets all that was written
be the caller's (`processes/step_owners.py`). What is in the image already is shown with its owners
(`mounts/level_owners.py`).
"""

from __future__ import annotations

import os

from kedge.runtime.mounts.level_owners import find_owned
from kedge.runtime.processes.subordinate_ids import STEP_IDS
from kedge.runtime.processes.supervise import end_with_parent, go_on_in_child
from kedge.runtime.step_options import OWNERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.mounts.layering import Layering
    from kedge.runtime.options import RunOptions
    from kedge.runtime.processes.step_owners import KeptFolder
    from kedge.runtime.step_options import StepOptions


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
        self._begin()
        own = os.getpid()
        go_on_in_child(lambda _: self._settle(), _load)
        self._step.parent = own

    def _begin(self) -> None:
        table = f"{self._step.changes}/{OWNERS}"
        if not self._step.kept and not os.path.exists(table):
            return
        from pathlib import Path  # late, both: few steps are begun again, or have such directories

        from kedge.runtime.processes.step_owners import KeptFolder, give_back

        if os.path.exists(table):  # a shell in a step that failed
            give_back(Path(self._step.changes, "upper"), Path(table).read_bytes())
            os.unlink(table)
        self._kept = [KeptFolder(Path(str(path)), (int(uid), int(gid))) for path, uid, gid in self._step.kept]

    def _settle(self) -> None:
        from pathlib import Path  # late, both: `_load` has loaded them

        from kedge.posix.files import explained
        from kedge.runtime.processes.step_owners import take_over

        for folder in self._kept:
            folder.take_over()
        table = Path(self._step.changes, OWNERS)
        with explained(table):
            table.write_bytes(take_over(Path(self._step.changes, "upper")))


def _load() -> None:
    """What is needed at the end, while the step runs."""
    import pathlib  # noqa: F401

    import kedge.runtime.processes.step_owners  # noqa: F401
