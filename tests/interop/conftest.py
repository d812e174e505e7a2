# SPDX-License-Identifier: BSD-3-Clause
"""The real Apptainer, with a directory that all tests of a file share with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders.apptainer import Apptainer, apptainer_folder


@pytest.fixture(scope="module")
def peer() -> Iterator[Apptainer]:
    with apptainer_folder() as running:
        yield running
