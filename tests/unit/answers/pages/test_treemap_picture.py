# SPDX-License-Identifier: BSD-3-Clause
"""The picture of directories: areas are sizes, nothing overlaps, nothing is outside."""

from __future__ import annotations

import pytest

from kedge.answers.pages.size_page import draw_treemap, place_shares
from kedge.compat.contents.size_report import SizeShare
from tests.builders.rows import each_row


@each_row("sizes", [[1], [5, 3, 2], [1000, 1, 1, 1], list(range(1, 41)), [7] * 16])
def test_treemap_areas_are_sizes(sizes: list[int]) -> None:
    placed = place_shares([SizeShare(str(number), size) for number, size in enumerate(sizes)], 100, 50)
    assert len(placed) == len(sizes)
    for part in placed:
        assert part.width * part.height == pytest.approx(5000 * part.share.size / sum(sizes))
        assert part.x >= -1e-6
        assert part.x + part.width <= 100 + 1e-6
        assert part.y + part.height <= 50 + 1e-6


def test_treemap_pictures() -> None:
    placed = place_shares([SizeShare(str(size), size) for size in (9, 7, 5, 4, 2, 1)], 60, 40)
    for number, one in enumerate(placed):
        for other in placed[number + 1 :]:
            apart_x = one.x + one.width <= other.x + 1e-6 or other.x + other.width <= one.x + 1e-6
            apart_y = one.y + one.height <= other.y + 1e-6 or other.y + other.height <= one.y + 1e-6
            assert apart_x or apart_y
    assert place_shares([SizeShare("a", 0)]) == []
    assert "<rect" not in draw_treemap([], "Directories")
    picture = draw_treemap([SizeShare("/<script>alert(1)</script>", 5)], "Directories")
    assert ("<script" in picture, picture.count("/&lt;script&gt;alert(1)&lt;/script&gt;")) == (False, 2)
