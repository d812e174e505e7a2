# SPDX-License-Identifier: BSD-3-Clause
"""The releases of the same image before and after one, of which more is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.compat.rules.capability_rule import read_kernels
from kedge.compat.versions import order

if TYPE_CHECKING:
    from kedge.compat.image.traits import ImageTraits
    from kedge.compat.tables.load import Tables
    from kedge.compat.tables.rows import NgcRelease

_MONTHLY = 2  # fields of 24.03


def find_neighbours(
    traits: ImageTraits, tables: Tables, *, is_stated: bool = False
) -> tuple[NgcRelease | None, NgcRelease | None]:
    """The nearest release before and after the image's that has a list of kernels for its architecture.

    `is_stated`: of which NVIDIA states from which GPU on they serve.
    """
    release = order(traits.release.value)
    if len(release) < _MONTHLY:
        return None, None
    told = []
    for row in tables.list_releases(traits.name):
        listed = row.capabilities if is_stated else row.capabilities_on(traits.architecture)
        kernels = read_kernels(listed)
        if kernels.stated is not None if is_stated else kernels:
            told.append((order(row.tag), row))
    before = [pair for pair in told if pair[0] < release]
    after = [pair for pair in told if pair[0] > release]
    return (
        max(before, key=lambda pair: pair[0])[1] if before else None,
        min(after, key=lambda pair: pair[0])[1] if after else None,
    )
