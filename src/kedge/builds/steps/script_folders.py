# SPDX-License-Identifier: BSD-3-Clause
"""Which directories %pre and %setup see: the current one, or the recipe's, and those of --context; never a home."""

from __future__ import annotations

import os
import shlex

from kedge.builds.host_reach import HostReach
from kedge.builds.request import HostItem
from kedge.builds.step_values import HostScriptStep, refuse_recipe
from kedge.container.start.build_step import StepContext
from kedge.errors import InvalidRecipe
from kedge.system.files import explained
from kedge.system.tree_walk import ConfinedTree

_PROGRAMS = ("/usr/", "/etc/")  # which such a script sees anyway; few sites have homes there


def choose_folders(reach: HostReach, step: HostScriptStep) -> StepContext:
    """What a script sees; raises InvalidRecipe where that would be a home, /, /tmp or a place of secrets."""
    given = [path for path in reach.allowed if os.path.isdir(path)]  # noqa: PTH112
    reasons = {path: _explain(reach, path) for path in (reach.folder, reach.recipe_folder, *given) if path}
    fitting = [path for path, reason in reasons.items() if not reason]
    if not fitting:
        raise _refuse(reach, step, reasons[reach.folder])
    folder = fitting[0]
    if folder != reach.folder:
        text = f"sees {folder}, not the current directory {reach.folder}: {reasons[reach.folder]}"
        reach.add(HostItem(step.section, step.place.line, text, folder))
    shown = dict.fromkeys((folder, *(path for path in given if path in fitting)))
    hidden = [path for place in shown for path in reach.places.list_secrets(place) if _is_closed(reach, path)]
    for path in hidden:
        reach.leave_out(path, step.place)
    hidden += [home for home in reach.places.homes if home.startswith(_PROGRAMS)]
    hidden += [path for place in _PROGRAMS for path in reach.places.list_secrets(place) if _is_closed(reach, path)]
    return StepContext(folder, tuple(_identify(path) for path in shown), tuple(dict.fromkeys(hidden)))


def _explain(reach: HostReach, path: str) -> str:
    """Why a script must not see a directory; empty: it may."""
    return reach.places.explain_width(path) or ("it holds secrets" if _is_closed(reach, path) else "")


def _is_closed(reach: HostReach, path: str) -> bool:
    return not reach.admits(path, reach.places.judge(path))


def _identify(path: str) -> tuple[str, int, int]:
    """The directory by device and inode: whoever exchanges it, or one above it, for a link gets an error."""
    with explained(path):
        status = ConfinedTree(b"/").find(os.fsencode(path).strip(b"/"))
    return path, status.st_dev, status.st_ino


def _refuse(reach: HostReach, step: HostScriptStep, reason: str) -> InvalidRecipe:
    recipe = shlex.quote(reach.file) if reach.recipe_folder else ""
    line = f"mkdir recipe && mv {recipe} builds/ && cd recipe" if recipe else "mkdir recipe && cd recipe"
    return refuse_recipe(
        step.place,
        f"%{step.section} would see all of {reach.folder}: {reason}",
        f"build in a directory of the recipe's own: {line}; or name what it may read: --context DIRECTORY",
    )
