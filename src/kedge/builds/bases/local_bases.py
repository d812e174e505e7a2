# SPDX-License-Identifier: BSD-3-Clause
"""A base that a recipe names by a path of this host: only a root file system, never a home, and not silently."""

from __future__ import annotations

import os
import shlex

from kedge.base.progress import Progress
from kedge.base.reference import Transport
from kedge.builds.bases.named_contexts import name_reference
from kedge.builds.host_reach import HostReach
from kedge.builds.step_values import Base, refuse_recipe
from kedge.errors import InvalidReference
from kedge.system.host.private_places import find_homes

_PARTS = (".singularity.d", "bin/sh", "usr/bin/sh", "etc/os-release", "etc/passwd")  # one of them is in any

_AGENTS = ("docker", "localimage", "oci", "oci-archive", "docker-archive")


def name_local_base(base: Base, progress: Progress, reach: HostReach) -> None:
    """Say which directory or file of this host a base is; raises InvalidRecipe for a directory that is no image, and
    with --contained for what lies outside.
    """
    if base.agent not in _AGENTS:
        return
    try:
        reference = name_reference(base)
    except InvalidReference:  # whoever opens it says so
        return
    if not reference.is_local or not reference.path:
        return
    path = os.path.realpath(reference.path)
    if reach.is_contained and not reach.is_own(path):
        raise refuse_recipe(
            base.place,
            f"--contained refuses {path}: {reach.explain_outside()}",
            f"to allow it: --context {shlex.quote(path)}",
        )
    if reference.transport is not Transport.FILE:
        return
    is_directory = os.path.isdir(path)  # noqa: PTH112
    if is_directory and not os.path.isfile(f"{path}/oci-layout"):  # noqa: PTH113
        _require_root(base, path)
    if is_directory or base.agent == "docker":
        progress.note(f"{base.place}: begins with {path} of this host")


def _require_root(base: Base, path: str) -> None:
    place = path.rstrip("/") + "/"
    why = ""
    if any(home.startswith(place) for home in find_homes()) or place == "/":
        why = "your home is in it" if f"{path}/" not in find_homes() else "it is your home"
    elif not any(os.path.lexists(f"{path}/{name}") for name in _PARTS):
        why = f"it has none of {', '.join(_PARTS)}"
    if why:
        raise refuse_recipe(
            base.place,
            f"{base.reference} is not a root file system: {why}",
            "name a sandbox or an image file; a directory of other files is a context: --build-context NAME=DIRECTORY",
        )
