# SPDX-License-Identifier: BSD-3-Clause
"""Generated layers, flattened into images, as unsquashfs, squashfuse, the kernel and we see them.

As `test_generated_trees`, and with all that a layer adds: whiteouts, opaque directories, names that replace others,
hard links, sparse members, and layers that are packed before it is known what of them shows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.juries import Jury, each_tree, judge_image
from tests.builders.written_trees import Trial, write_by_layers

pytestmark = pytest.mark.timeout(7200)


def judge_layers(jury: Jury, seed: int, place: Path, *, processes: bool) -> None:
    trial = Trial.choose(seed)
    tree = write_by_layers(trial, place / "image", processes=processes)
    judge_image(jury, seed, place / "image", tree, trial.block)


@each_tree(60, 8_000)
def test_trees_that_came_in_layers_are_what_they_were(jury: Jury, seed: int, tmp_path: Path) -> None:
    judge_layers(jury, seed, tmp_path, processes=False)


@each_tree(6, 500)
def test_trees_whose_layers_were_packed_by_processes_are_what_they_were(jury: Jury, seed: int, tmp_path: Path) -> None:
    judge_layers(jury, seed, tmp_path, processes=True)
