# SPDX-License-Identifier: BSD-3-Clause
"""What machine this is, in the few words that everybody asks for first."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kedge.doctor.surroundings import Surroundings
from kedge.host.limits import read_limits
from kedge.model.size import format_size


def describe_machine(surroundings: Surroundings) -> dict[str, str]:
    """Host, system, kernel, processor, memory and user of this process."""
    root = Path(surroundings.root)
    names = os.uname()
    limits = read_limits(root)
    memory = "not known" if limits.memory is None else f"{format_size(limits.memory)} ({limits.memory_from})"
    return {
        "host": names.nodename,
        "system": _read_distribution(root),
        "kernel": f"{names.release} {names.machine}",
        "processors": f"{limits.cpus} ({limits.cpus_from})",
        "memory": memory,
        "user": f"{surroundings.environ.get('USER') or surroundings.environ.get('LOGNAME') or '-'} ({os.getuid()})",
    }


def _read_distribution(root: Path) -> str:
    """The distribution's own name of itself, from os-release."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        with contextlib.suppress(OSError):
            for line in (root / name).read_text(errors="replace").splitlines():
                key, _, value = line.partition("=")
                if key == "PRETTY_NAME":
                    return value.strip().strip("\"'")
    return "not known"
