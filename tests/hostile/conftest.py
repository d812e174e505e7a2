# SPDX-License-Identifier: BSD-3-Clause
"""For all hostile tests: a kedge that is loaded already builds recipes; what a start loads has tests of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders.builds import Workshop
from tests.builders.containers import each_role


@pytest.fixture
def shop() -> Iterator[Workshop]:
    """Where an ordinary user builds, empty for each test."""
    for user in each_role("user", is_warm=True):
        yield Workshop.open(user)
