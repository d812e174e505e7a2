# SPDX-License-Identifier: BSD-3-Clause
"""Images that mean harm, against kedge as it is installed, from where users stand: a part of `test_run_hostile`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.installed import INSTALLED, InstalledRunner, each_installed
from tests.builders.matrices import EVERY
from tests.hostile import test_run_hostile as hostile
from tests.hostile.test_run_hostile import (  # noqa: F401 - run here too, with the runner below
    Canary,
    canary,
    image,
    plain,
    test_environment_of_an_image_acts_only_inside,
    test_huge_environment_scripts_are_refused,
    test_links_in_place_of_the_folders_of_an_overlay,
    test_passwd_lines_that_name_the_caller_change_nothing_but_names,
)


@pytest.fixture(scope="module", params=INSTALLED, ids=" from ".join)
def runner(request: pytest.FixtureRequest) -> Iterator[InstalledRunner]:
    yield from each_installed(*request.param)


@EVERY
@pytest.mark.parametrize("link", ["{canary}", "/proc/self/cwd"])
def test_links_lead_nowhere(runner: InstalledRunner, plain: Path, canary: Canary, link: str, is_every: bool) -> None:  # noqa: F811
    """Where kedge lies matters to no place: the installations share them out."""
    for places in hostile.PLACES if is_every else hostile.PLACES[runner.number :: len(INSTALLED)]:
        hostile.test_links_in_the_places_of_a_start_lead_nowhere(runner, plain, canary, places, link)


@EVERY
def test_working_folder_of_an_image(runner: InstalledRunner, plain: Path, canary: Canary, is_every: bool) -> None:  # noqa: F811
    folders = ("/proc/self/fd/3", "/proc/1/cwd")
    for folder in folders if is_every else folders[runner.number % 2 :][:1]:
        hostile.test_working_folder_of_an_image_is_in_the_image(runner, canary, folder)
