# SPDX-License-Identifier: BSD-3-Clause
"""How fast the InfiniBand, RoCE and Omni-Path ports of this host are, as the kernel says in /sys."""

from __future__ import annotations

import re
from pathlib import Path

_PORTS = "sys/class/infiniband/*/ports/*"
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?) Gb/sec")
_MOST = 256  # ports that are looked at


def read_fabric_rates(root: Path = Path("/")) -> list[float]:
    """Gb/s of every port whose link is up, in the order of their names."""
    rates = []
    for port in sorted(root.glob(_PORTS))[:_MOST]:
        match = _RATE.match(_read(port / "rate"))
        if match and "ACTIVE" in _read(port / "state"):
            rates.append(float(match[1]))
    return rates


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:200]
    except OSError:
        return ""
