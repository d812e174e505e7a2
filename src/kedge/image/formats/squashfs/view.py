# SPDX-License-Identifier: BSD-3-Clause
"""The files of a SquashFS image by path, without mounting it: only what lies on the way to a path is read."""

from __future__ import annotations

from typing import BinaryIO, Self

from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.tree_view import TreeView


class SquashView(TreeView):
    """The tree of a SquashFS file, or of one inside a SIF; a context manager."""

    def __init__(self, file: BinaryIO, offset: int = 0, size: int | None = None) -> None:
        self._reader = SquashReader(file, offset, size)
        super().__init__(self._reader.find, self._reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._reader.close()
