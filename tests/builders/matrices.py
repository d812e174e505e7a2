# SPDX-License-Identifier: BSD-3-Clause
"""Of a cross product, the cells with a reason of their own run always; `make test-all` tries the others, too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest

# For tests that choose among their rows themselves, and take all of them once in `make test-all`
EVERY = pytest.mark.parametrize("is_every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "every"])


def each_cell(names: str, has_reason: Callable[..., bool], *axes: Iterable[object]) -> pytest.MarkDecorator:
    """Parametrize by all cells of the axes; what has no reason is `long`. A `runner` among the names is its fixture."""
    cells = [
        pytest.param(*cell, marks=() if has_reason(*cell) else pytest.mark.long, id="-".join(map(_name, cell)))
        for cell in itertools.product(*axes)
    ]
    if "runner" not in names.split(","):
        return pytest.mark.parametrize(names, cells)
    return pytest.mark.parametrize(names, cells, indirect=["runner"], scope="module")


def _name(value: object) -> str:
    """A row's part of the test's name; of several words the first one tells it from others."""
    if isinstance(value, tuple):
        return str(value[0]) if value else ""
    return str(value)
