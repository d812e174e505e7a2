# SPDX-License-Identifier: BSD-3-Clause
"""Formats sizes for people."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def format_size(size: int) -> str:
    """`512 B`, `1.5 GB`: powers of 1000, three significant digits."""
    value = float(size)
    for unit in _UNITS:
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    if unit == "B":
        return f"{size} B"
    return f"{value:.3g} {unit}"
