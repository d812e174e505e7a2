# SPDX-License-Identifier: BSD-3-Clause
"""What a build asks of the container of one of its steps, beyond the options of `exec`.

No flag sets these: `start/build_step.py` sends them to its child as one document. It is on the path of every start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


OWNERS = "owners"  # beside `upper`: the table of whose the files of a step are that had all users of the image


class StepOptions:
    """The attributes below are the defaults."""

    environment: dict[str, str]  # all variables of the program
    layers: list[str]  # directories in overlay form above the base, lowest first
    changes: str = ""  # the directory that holds `upper` and `work`; empty: the base itself is written
    user: str = ""  # USER[:GROUP] of the image, names or numbers; empty: root
    kept: list[list[str | int]]  # directories that outlive the step: path, user and group
    tmpfs: list[list[str]]  # path, size in bytes or empty, and mode of file systems in memory
    binds: list[list[str]]  # source, destination, `ro` or empty
    files: list[list[str]]  # path, content, mode: read-only files in memory, of this container alone
    context: str = ""  # a script with the programs of the host: the directory it starts in
    shown: list[list[str | int]]  # directories that such a script sees: path, device and inode
    hidden: list[str]  # what it does not see of them
    parent: int = 0  # the process that the step must not outlive

    def __init__(self, values: Mapping[str, object]) -> None:
        self.environment, self.layers, self.tmpfs, self.binds, self.files = {}, [], [], [], []
        self.shown, self.hidden, self.kept = [], [], []
        for name, value in values.items():
            if name not in StepOptions.__annotations__:
                raise TypeError(f"StepOptions has no '{name}'")
            setattr(self, name, value)
