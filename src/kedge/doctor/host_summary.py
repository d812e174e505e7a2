# SPDX-License-Identifier: BSD-3-Clause
"""The host in a few lines: system, kernel, CPUs, memory and user."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kedge.doctor.surroundings import Surroundings
from kedge.host.limits import read_limits
from kedge.model.size import format_size


def describe_machine(surroundings: Surroundings) -> dict[str, str]:
    """Describe host, system, kernel, CPUs, memory and user."""
    root = Path(surroundings.root)
    names = os.uname()
    limits = read_limits(root)
    memory = "unknown" if limits.memory is None else f"{format_size(limits.memory)} ({limits.memory_from})"
    return {
        "host": names.nodename,
        "system": _read_distribution(root),
        "kernel": f"{names.release} {names.machine}",
        "processors": f"{limits.cpus} ({limits.cpus_from})",
        "memory": memory,
        "user": f"{surroundings.environ.get('USER') or surroundings.environ.get('LOGNAME') or '-'} ({os.getuid()})",
    }


def _read_distribution(root: Path) -> str:
    """Read the distribution's name from os-release."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        with contextlib.suppress(OSError):
            for line in (root / name).read_text(errors="replace").splitlines():
                key, _, value = line.partition("=")
                if key == "PRETTY_NAME":
                    return value.strip().strip("\"'")
    return "unknown"
