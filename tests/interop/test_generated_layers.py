# SPDX-License-Identifier: BSD-3-Clause
"""Generated layers, flattened into images, as unsquashfs, squashfuse, the kernel and we see them.

As `test_generated_trees`, and with all that a layer adds: whiteouts, opaque directories, names that replace others,
hard links, sparse members, and layers that are packed before it is known what of them shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.juries import Jury, choose_seeds, judge_image
from tests.builders.written_trees import Trial, write_by_layers

pytestmark = pytest.mark.timeout(7200)


@pytest.mark.parametrize(
    ("count", "processes"),
    [
        pytest.param(130, False, id="few"),
        pytest.param(10, True, id="few, packed by processes"),
        pytest.param(8_000, False, marks=pytest.mark.long, id="many"),
        pytest.param(500, True, marks=pytest.mark.long, id="many, packed by processes"),
    ],
)
def test_trees_that_came_in_layers_are_what_they_were(
    count: int, processes: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    jury = Jury()

    def check(seed: int) -> None:
        trial = Trial.choose(seed)
        tree = write_by_layers(trial, tmp_path / "image", processes=processes)
        judge_image(jury, seed, tmp_path / "image", tree, trial.block)

    jury.try_each(choose_seeds(count), check)
    jury.tell(record_property)
