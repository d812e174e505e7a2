# SPDX-License-Identifier: BSD-3-Clause
"""Whether this host allows the namespaces of a container, and what forbids them if not."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.answers.doctor.containers.trial import KernelRefusal, try_namespaces
from kedge.answers.doctor.finding import FAIL, NOTE, OK, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.container.start.namespace_errors import explain_refusal

NAME = "user-namespaces"
_MARKS = (".dockerenv", "run/.containerenv", ".singularity.d")
_VARIABLES = ("KEDGE_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


def check_user_namespaces(surroundings: Surroundings) -> list[Finding]:
    """Create in a child what every container has: a user namespace, its map of users, a mount namespace."""
    return [judge_namespaces(try_namespaces(surroundings.environ), os.getuid(), Path(surroundings.root))]


def judge_namespaces(refused: KernelRefusal | None, uid: int, root: Path) -> Finding:
    """Explain the result of the trial."""
    if refused is None:
        return Finding(NAME, OK, "allowed" if uid else "allowed (root's containers need no user namespace)")
    explained = explain_refusal(refused.problem, refused.step, root)
    cause = explained.message.partition(": ")[2]
    return Finding(
        NAME,
        FAIL,
        f"not allowed: {cause} (kernel: {refused.words})",
        why="every container needs namespaces; kedge cannot start one without them",
        fix=f"{explained.hint}. Login nodes are often stricter than compute nodes: run 'kedge doctor' in a job, too",
        docs=f"kedge help doctor {NAME}",
    )


def check_outer_container(surroundings: Surroundings) -> list[Finding]:
    """Check whether this shell runs inside a container, whose rules apply to nested containers."""
    root = Path(surroundings.root)
    name = "outer-container"
    variable = next((variable for variable in _VARIABLES if surroundings.environ.get(variable)), "")
    mark = next((path for path in _MARKS if (root / path).exists()), "")
    if not variable and not mark:
        return [Finding(name, OK, "none: this shell is not inside a container")]
    sign = f"/{mark} exists" if mark else f"{variable} is set"
    return [
        Finding(
            name,
            NOTE,
            f"this shell is inside a container ({sign})",
            why="the outer container's rules, mounts and limits apply, and programs of the host are not visible: the "
            "other findings are about the container, not the host",
            fix="to check the host, leave the container and run 'kedge doctor' again",
            docs=f"kedge help doctor {name}",
        )
    ]
