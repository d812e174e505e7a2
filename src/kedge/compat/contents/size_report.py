# SPDX-License-Identifier: BSD-3-Clause
"""What holds the bytes of an image, as values: layers, packages, directories, types of files, and what can go."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen


@frozen
class SizeShare(JsonValue):
    """A part of an image: a directory, a type of files, what one package manager installed."""

    name: str
    size: int  # bytes of its files, not compressed
    files: int = 0


@frozen
class LayerSize(JsonValue):
    """One layer: as it is stored, and what is in it."""

    digest: str
    created_by: str
    stored: int  # bytes, compressed
    size: int  # bytes of its files
    hidden: int = 0  # of these, bytes that a higher layer deletes or replaces
    hidden_files: int = 0
    examples: tuple[str, ...] = ()  # the largest hidden ones


@frozen
class PackageSize(JsonValue):
    """One package and the bytes of its files."""

    manager: str
    name: str
    version: str
    size: int


@frozen
class DuplicateFiles(JsonValue):
    """Files with the same contents."""

    size: int  # of one of them
    paths: tuple[str, ...]
    count: int  # of all, also those that are not listed

    @property
    def wasted(self) -> int:
        """What could be saved."""
        return self.size * (self.count - 1)


@frozen
class Saving(JsonValue):
    """Something that can go, what it would save, and what to write in the recipe."""

    name: str  # of the rule
    title: str
    size: int
    files: int
    better: str  # the better line
    is_optional: bool = False  # it has its use: `note` says what is lost
    note: str = ""
    examples: tuple[str, ...] = ()


@frozen
class SizeReport(JsonValue):
    """All that `kedge image size` tells; the largest first in every list."""

    name: str
    size: int  # bytes of all files that show, each once
    files: int
    stored: int | None  # bytes of the file, or of the layers as they are stored
    layers: tuple[LayerSize, ...] = ()
    managers: tuple[SizeShare, ...] = ()
    packages: tuple[PackageSize, ...] = ()
    directories: tuple[SizeShare, ...] = ()  # disjoint: together they are the image
    types: tuple[SizeShare, ...] = ()
    duplicates: tuple[DuplicateFiles, ...] = ()
    savings: tuple[Saving, ...] = ()

    json_also = ("hidden", "duplicated")

    @property
    def hidden(self) -> int:
        """Bytes that are stored and cannot be seen."""
        return sum(layer.hidden for layer in self.layers)

    @property
    def duplicated(self) -> int:
        """Bytes of further copies."""
        return sum(group.wasted for group in self.duplicates)
