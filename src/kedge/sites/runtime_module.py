# SPDX-License-Identifier: BSD-3-Clause
"""Which module has a container runtime, from what `module -t avail` prints."""

from __future__ import annotations

import re

# `module` is a function of login shells, and prints to standard error
AVAILABLE = ("bash", "-lc", "module -t avail 2>&1")
_RUNTIME = re.compile(r"(?:[\w.+-]+/)*(?:[\w.+-]*-)?(?:apptainer|singularity(?:pro|ce)?)(?:/[\w.+-]+)?", re.IGNORECASE)


def find_runtime_module(text: str) -> str:
    """The module of Apptainer, else of Singularity; without a version where the site has a default. Empty: none."""
    names = [re.sub(r"\((?:default|D|L)\)$", "", line.strip()) for line in text.splitlines()]
    modules = [name.rstrip("/") for name in names if _RUNTIME.fullmatch(name.rstrip("/"))]
    if not modules:
        return ""
    best = min(modules, key=lambda name: ("apptainer" not in name.lower(), "/" in name))
    return best.rpartition("/")[0] if re.fullmatch(r"v?\d.*", best.rpartition("/")[2]) else best
