# SPDX-License-Identifier: BSD-3-Clause
"""Digits like MNIST's, drawn here: 28 × 28 grey pictures of 0 to 9, moved, slanted and noisy; no download."""

import torch
from torch.nn import functional

# five columns and seven rows a digit
_DRAWN = """
.###. ..#.. .###. ####. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# ....# ..##. #.... #.... ....# #...# #...#
#...# ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#...# ..#.. ...#. .###. #..#. ....# ####. ..#.. .###. .####
#...# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... ....# ...#. ....# #...# .#... #...# ....#
.###. .###. ##### ####. ...#. ####. .###. .#... .###. .###.
"""


def _read_shapes():
    rows = [line.split() for line in _DRAWN.strip().splitlines()]
    return torch.tensor([[[float(c == "#") for c in row[digit]] for row in rows] for digit in range(10)])


_SHAPES = _read_shapes()


def draw_digits(count, generator):
    """Pictures (count × 1 × 28 × 28) and their labels."""
    labels = torch.randint(10, (count,), generator=generator)
    shapes = functional.interpolate(_SHAPES[labels].unsqueeze(1), (21, 15), mode="bilinear")
    # an affine map each: a little larger or smaller, slanted, moved
    change = torch.rand(count, 4, generator=generator) * 2 - 1
    maps = torch.zeros(count, 2, 3)
    maps[:, 0, 0], maps[:, 1, 1] = 1.5 + 0.25 * change[:, 0], 1.25 + 0.15 * change[:, 0]
    maps[:, 0, 1], maps[:, 0, 2], maps[:, 1, 2] = 0.3 * change[:, 1], 0.3 * change[:, 2], 0.2 * change[:, 3]
    grid = functional.affine_grid(maps, (count, 1, 28, 28), align_corners=False)
    pictures = functional.grid_sample(shapes, grid, align_corners=False)
    return (pictures + 0.2 * torch.randn(pictures.shape, generator=generator)).clamp(0, 1), labels
