# SPDX-License-Identifier: BSD-3-Clause
"""The releases of the same image before and after one, of which more is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.compat.capability_rule import read_kernels
from kedge.compat.versions import order

if TYPE_CHECKING:
    from kedge.compat.rows import NgcRelease
    from kedge.compat.tables import Tables
    from kedge.compat.traits import ImageTraits

_MONTHLY = 2  # fields of 24.03


def find_neighbours(traits: ImageTraits, tables: Tables) -> tuple[NgcRelease | None, NgcRelease | None]:
    """The nearest release before and after the image's of whose kernels something is known, for its architecture."""
    release = order(traits.release.value)
    if len(release) < _MONTHLY:
        return None, None
    listed = [
        (order(row.tag), row)
        for row in tables.list_releases(traits.name)
        if row.capabilities and _tells_kernels(row, traits.architecture)
    ]
    before = [pair for pair in listed if pair[0] < release]
    after = [pair for pair in listed if pair[0] > release]
    return (
        max(before, key=lambda pair: pair[0])[1] if before else None,
        min(after, key=lambda pair: pair[0])[1] if after else None,
    )


def _tells_kernels(row: NgcRelease, architecture: str) -> bool:
    kernels = read_kernels(row.capabilities, architecture)
    return bool(kernels) or kernels.stated is not None
