# SPDX-License-Identifier: BSD-3-Clause
"""Versions as people and NVIDIA write them, made comparable: 535.104.05, 12.3.2.001, 9.0. A start imports this."""

from __future__ import annotations

_LONGEST_FIELD = 9  # digits; what is longer is no version
_MOST = 4096  # versions to remember; the tables have fewer
_known: dict[str, tuple[int, ...]] = {}


def order(text: str) -> tuple[int, ...]:
    """The leading dotted numbers of a version: (12, 3, 2, 1) of `12.3.2.001+cuda`; empty when it starts with none."""
    fields = _known.get(text)
    if fields is None:
        if len(_known) >= _MOST:
            _known.clear()
        fields = _known[text] = _read(text)
    return fields


def is_at_least(text: str, other: str) -> bool:
    """Whether a version is another or newer; fields that are missing count as zero, as NVIDIA's tools do."""
    ours, theirs = order(text), order(other)
    length = max(len(ours), len(theirs))
    return _fill(ours, length) >= _fill(theirs, length)


def major_minor(text: str) -> str:
    """`12.3` of `12.3.2.001`; `12` of `12`; empty where there is no number."""
    return ".".join(str(field) for field in order(text)[:2])


def is_driver_version(text: str) -> bool:
    """Whether it looks like a driver's version: 580.95.05."""
    parts = text.split(".")
    return 2 <= len(parts) <= 4 and all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts)


def split_library_name(name: str) -> tuple[str, str]:
    """`libcuda`, `580.95.05` of libcuda.so.580.95.05."""
    stem, _, suffix = name.partition(".so")
    return stem, suffix[1:]


def _fill(fields: tuple[int, ...], length: int) -> tuple[int, ...]:
    return fields + (0,) * (length - len(fields))


def _read(text: str) -> tuple[int, ...]:
    fields = []
    for part in text.strip().split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits or len(digits) > _LONGEST_FIELD:
            break
        fields.append(int(digits))
        if digits != part:
            break
    return tuple(fields)
