# SPDX-License-Identifier: BSD-3-Clause
"""Whether containers can be made here: namespaces by trying, and what keeps one from making them."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.doctor.containers.trial import KernelRefusal, try_namespaces
from kedge.doctor.finding import FAIL, NOTE, OK, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.runtime.start.namespace_errors import explain_refusal

NAME = "user-namespaces"
_MARKS = (".dockerenv", "run/.containerenv", ".singularity.d")
_VARIABLES = ("KEDGE_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


def check_user_namespaces(surroundings: Surroundings) -> list[Finding]:
    """Make in a child what every container has: a user namespace, its map of users, a mount namespace."""
    return [judge_namespaces(try_namespaces(surroundings.environ), os.getuid(), Path(surroundings.root))]


def judge_namespaces(refused: KernelRefusal | None, uid: int, root: Path) -> Finding:
    """What the trial means."""
    if refused is None:
        return Finding(NAME, OK, "can be made" if uid else "can be made (root's containers need no user namespace)")
    explained = explain_refusal(refused.problem, refused.step, root)
    cause = explained.message.partition(": ")[2]
    return Finding(
        NAME,
        FAIL,
        f"cannot be made: {cause} (the kernel says: {refused.words})",
        "every container is made of namespaces; without them kedge cannot start one",
        f"{explained.hint}. Login nodes are often stricter than compute nodes: try it in a job, too",
        f"kedge help doctor {NAME}",
    )


def check_outer_container(surroundings: Surroundings) -> list[Finding]:
    """Whether this shell is in a container itself, whose rules then hold for all that is made in it."""
    root = Path(surroundings.root)
    name = "outer-container"
    variable = next((each for each in _VARIABLES if surroundings.environ.get(each)), "")
    mark = next((each for each in _MARKS if (root / each).exists()), "")
    if not variable and not mark:
        return [Finding(name, OK, "this is not inside a container")]
    sign = f"/{mark} is here" if mark else f"{variable} is set"
    return [
        Finding(
            name,
            NOTE,
            f"this is inside a container ({sign})",
            "the outer container's rules, mounts and limits hold here, and programs of the host are not seen: the "
            "other findings are about the container, not about the machine",
            "leave the container and ask again, if the machine is what you want to know about",
            f"kedge help doctor {name}",
        )
    ]
