# SPDX-License-Identifier: BSD-3-Clause
"""Modules of kedge that lie in an image, against kedge as it is installed, from where users stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.installed import INSTALLED, InstalledRunner, each_installed
from tests.hostile.test_run_modules import (  # noqa: F401 - run here too, with the runner below
    image,
    test_modules_of_an_instance_are_not_loaded,
    test_modules_of_the_image_are_not_loaded,
)


@pytest.fixture(scope="module", params=INSTALLED, ids=" from ".join)
def runner(request: pytest.FixtureRequest) -> Iterator[InstalledRunner]:
    yield from each_installed(*request.param)


@pytest.fixture(scope="module")
def package(runner: InstalledRunner) -> Path:
    return runner.package
