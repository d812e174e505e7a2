# SPDX-License-Identifier: BSD-3-Clause
"""Generated trees through every call of our SquashFS writer, as unsquashfs, squashfuse, the kernel and we see them.

Sizes crowd at the edges of blocks and fragments. `tests/builders/juries.py` says how one tree is repeated. Owners,
devices and mounts need root; without it squashfuse and our own reader look.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.generated_trees import grow_tree
from tests.builders.juries import Jury, each_tree, judge_image
from tests.builders.written_trees import Trial, write_by_calls

pytestmark = pytest.mark.timeout(7200)


@each_tree(120, 11_000)
def test_trees_that_were_handed_to_the_writer_are_what_they_were(jury: Jury, seed: int, tmp_path: Path) -> None:
    trial = Trial.choose(seed)
    tree = grow_tree(trial.rng, trial.block)
    write_by_calls(trial, tree, tmp_path / "image")
    judge_image(jury, seed, tmp_path / "image", tree, trial.block)
