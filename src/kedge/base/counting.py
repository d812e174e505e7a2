# SPDX-License-Identifier: BSD-3-Clause
"""Formats counts for people."""

from __future__ import annotations


def count_things(number: int, thing: str) -> str:
    """`1 tag`, `3 tags`, `2 directories`."""
    plural = f"{thing.removesuffix('y')}ies" if thing.endswith("ry") else f"{thing}s"
    return f"{number} {thing if number == 1 else plural}"
