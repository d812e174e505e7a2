# SPDX-License-Identifier: BSD-3-Clause
"""Durations and sizes as Go writes them: `1m30s`, `1.5h`, `64m`."""

from __future__ import annotations

import re

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\xb5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile("([0-9]{1,40}(?:\\.[0-9]{0,40})?|\\.[0-9]{1,40})(ns|us|\xb5s|\u03bcs|ms|s|m|h)")
_SIZE = re.compile(r"([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}) ?(?:b|([kmgtp])(?:b|ib)?)?", re.IGNORECASE)


def read_nanoseconds(text: str) -> int | None:
    """The time in nanoseconds, or None if the text is no duration."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    parts = list(_PART.finditer(rest))
    if not parts or "".join(part[0] for part in parts) != rest:
        return None
    time = sign * sum(_multiply(part[1], _UNITS[part[2]]) for part in parts)
    return time if abs(time) < 1 << 63 else None


def read_bytes(text: str) -> int | None:
    """The size in bytes, with units of 1024, or None if the text is no size."""
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    power = " kmgtp".index((match[2] or " ").lower())
    return _multiply(match[1], 1024**power)


def _multiply(number: str, unit: int) -> int:
    """A decimal number of units, cut off behind the point."""
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    return int(f"{whole}{fraction}") * unit // scale
