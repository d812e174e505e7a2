# SPDX-License-Identifier: BSD-3-Clause
"""What a program can reach, against kedge as it is installed, from where users stand: a part of `test_run_reach`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.installed import INSTALLED, InstalledRunner, each_installed
from tests.builders.matrices import EVERY
from tests.hostile import test_run_reach as reach
from tests.hostile.test_run_reach import (  # noqa: F401 - run here too, with the runner below
    canary,
    packed,
    test_file_system_servers_cannot_be_entered,
    test_root_inside_is_kept_in_by_a_process_id_namespace,
    test_the_hosts_processes_cannot_be_entered,
)


@pytest.fixture(scope="module", params=INSTALLED, ids=" from ".join)
def runner(request: pytest.FixtureRequest) -> Iterator[InstalledRunner]:
    yield from each_installed(*request.param)


@EVERY
def test_the_hosts_tree_is_gone(runner: InstalledRunner, image: str, canary: Path, is_every: bool) -> None:  # noqa: F811
    """Mounts are made alike wherever kedge lies: the installations share the ways out."""
    for way in reach.WAYS if is_every else reach.WAYS[runner.number :: len(INSTALLED)]:
        reach.test_the_hosts_tree_is_gone(runner, image, canary, way)
