# SPDX-License-Identifier: BSD-3-Clause
"""Digits, 28 × 28 grey pictures of 0 to 9: MNIST's own from its IDX files, or drawn here, moved, slanted and noisy."""

import gzip
import math
import pathlib
import struct
import sys

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


MNIST_PARTS = {"train": "train", "test": "t10k"}
_BYTES = 0x08  # IDX: the kind of its values


def read_mnist(folder, part):
    """Pictures (count × 1 × 28 × 28, bytes) and labels of "train" or "test", from MNIST's files, gzip or not."""
    pictures = _read_idx(_find_file(folder, MNIST_PARTS[part], "images", 3), 3)
    labels = _read_idx(_find_file(folder, MNIST_PARTS[part], "labels", 1), 1)
    if pictures.shape[1:] != (28, 28) or len(pictures) != len(labels) or not len(labels) or labels.max() > 9:
        sys.exit(
            f"train.py: {folder}: the files of {part} are not MNIST's: {tuple(pictures.shape)}, {len(labels)} labels"
        )
    return pictures.unsqueeze(1), labels.long()


def _find_file(folder, part, kind, dimensions):
    """The file under one of its usual names."""
    names = [f"{part}-{kind}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    for name in names:
        if (pathlib.Path(folder) / name).is_file():
            return pathlib.Path(folder) / name
    sys.exit(f"train.py: {folder} has no {names[0]}, nor {names[1]}")


def _read_idx(path, dimensions):
    """The array of bytes in an IDX file: two zeros, kind, dimensions, each one's length, then the values."""
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError) as problem:
        sys.exit(f"train.py: {path} is damaged: {problem}")
    if data[:4] != bytes((0, 0, _BYTES, dimensions)) or len(data) < 4 + 4 * dimensions:
        sys.exit(f"train.py: {path} is not an IDX file of bytes in {dimensions} dimensions")
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    start = 4 + 4 * dimensions
    if len(data) - start != math.prod(shape):
        sys.exit(f"train.py: {path} is cut: {len(data) - start} values, not {math.prod(shape)}")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)[start:].view(shape)
