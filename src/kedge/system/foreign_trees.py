# SPDX-License-Identifier: BSD-3-Clause
"""Removes trees in which files belong to subordinate ids: what a step of a build leaves that was killed.

The caller may not look into such directories. Root of a namespace that has these ids may: that is another kedge.
"""

from __future__ import annotations

import os
from pathlib import Path

from kedge.system.confined_paths import remove_tree
from kedge.system.tree_walk import walk_tree

REMOVE = "--remove"  # of the verb that runs steps


def remove_with_foreign(path: Path) -> None:
    """Delete a directory with all below it, whoever of the caller's users owns it. Missing is fine."""
    try:
        remove_tree(path)
    except PermissionError:
        if os.geteuid() == 0 or not has_foreign_files(path):
            raise
        # late, both: only builds that were interrupted leave such files
        from kedge.system.process import run_program
        from kedge.system.start_kedge import own_start_command

        command = own_start_command("build-step", REMOVE, str(path.absolute()))
        if run_program(command, environment=dict(os.environ), check=False, capture=True).status:
            raise


def has_foreign_files(path: Path) -> bool:
    """Whether something below a directory belongs to another user than this one."""
    own = os.geteuid()
    walk = walk_tree(path, follows=False)
    return own != 0 and any(status.st_uid != own for _, entries in walk for _, status in entries)
