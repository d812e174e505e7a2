# SPDX-License-Identifier: BSD-3-Clause
"""The kernel's version: what a container can be made with depends on it."""

from __future__ import annotations

import os
import re

from kedge.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.doctor.surroundings import Surroundings

_DOCS = "kedge help doctor kernel"


def check_kernel(surroundings: Surroundings) -> list[Finding]:
    """Old kernels have less: no overlay for users before 5.11, no user namespaces worth the name before 3.8."""
    del surroundings
    return [judge_kernel(os.uname().release)]


def judge_kernel(release: str) -> Finding:
    """What a kernel of this release cannot do; distributions carry newer things back, so trying tells more."""
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if len(version) < 2:
        what, why = f"{release}: the version cannot be read", "what works is found out by trying, not by the version"
        return Finding("kernel", NOTE, what, why, "nothing has to be done", _DOCS)
    if version < (3, 10):
        return Finding(
            "kernel",
            WARNING,
            release,
            "kernels before 3.10 have no user namespaces that can be used, so containers need a setuid runtime",
            "use another node, or --runtime apptainer where that is installed",
            _DOCS,
        )
    if version < (5, 11):
        return Finding(
            "kernel",
            OK,
            f"{release} (before 5.11: overlays of users need fuse-overlayfs, unless the distribution added them)",
        )
    return Finding("kernel", OK, release)
