# SPDX-License-Identifier: BSD-3-Clause
"""The kernel's version, which limits what containers can use."""

from __future__ import annotations

import os
import re

from kedge.answers.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings

_DOCS = "kedge help doctor kernel"


def check_kernel(surroundings: Surroundings) -> list[Finding]:
    """Check for old kernels: no overlay for users before 5.11, no usable user namespaces before 3.10."""
    del surroundings
    return [judge_kernel(os.uname().release)]


def judge_kernel(release: str) -> Finding:
    """Explain what this kernel lacks. Distributions backport features, so the other checks try them."""
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if len(version) < 2:
        what, why = f"{release}: version unknown", "the other checks try the kernel's features and need no version"
        return Finding("kernel", NOTE, what, why=why, fix="no action needed", docs=_DOCS)
    if version < (3, 10):
        return Finding(
            "kernel",
            WARNING,
            release,
            why="kernels before 3.10 have no usable user namespaces, so containers need a setuid runtime",
            fix="use another node, or --runtime apptainer if it is installed",
            docs=_DOCS,
        )
    if version < (5, 11):
        return Finding(
            "kernel",
            OK,
            f"{release} (before 5.11: overlays without root need fuse-overlayfs or a backport of the distribution)",
        )
    return Finding("kernel", OK, release)
