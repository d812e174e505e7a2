# SPDX-License-Identifier: BSD-3-Clause
"""What holds the bytes of an image, as values: layers, packages, directories, types of files, and what can go."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from kedge.base.frozen import JsonValue, frozen, list_names
from kedge.compat.tables.columns import TableKind
from kedge.compat.tables.load import read_shipped


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


# The type of a file by its name, for tables of what holds the bytes.

EXECUTABLES, OTHER = "programs and scripts", "other"
_TYPES = (
    ("shared libraries", rb"\.so(?:\.[\w.-]+)?"),
    ("static libraries and objects", rb"\.(?:a|la|o|rlib)"),
    ("Python bytecode", rb"\.py[co]"),
    ("Python source", rb"\.(?:py|pyi|pyx|pxd)"),
    ("headers", rb"\.(?:h|hh|hpp|hxx|cuh|inl)"),
    ("source code", rb"\.(?:c|cc|cpp|cxx|cu|f|f90|rs|go|java|js|ts|R)"),
    ("debug information", rb"\.(?:debug|dwp|pdb)"),
    (
        "archives and packages",
        rb"\.(?:tar|tgz|tbz2|txz|zip|whl|deb|rpm|apk|conda|jar|egg|iso|run|7z|(?:tar\.)?(?:gz|xz|bz2|zst))",
    ),
    ("models and weights", rb"\.(?:pt|pth|ckpt|safetensors|onnx|gguf|h5|hdf5|pb|tflite|caffemodel|engine|plan)"),
    ("data", rb"\.(?:json|csv|tsv|xml|npy|npz|parquet|db|sqlite|dat|bin|npk|pkl|yaml|yml)"),
    ("documents", rb"\.(?:md|rst|txt|html?|pdf|tex|info)"),
    ("translations", rb"\.(?:mo|po)"),
    ("pictures, fonts and media", rb"\.(?:png|jpe?g|gif|svg|ico|ttf|otf|woff2?|pfb|mp4|wav|webp)"),
)
_NAMED = re.compile(rb"|".join(b"(.+" + pattern + b"\\Z)" for _, pattern in _TYPES), re.IGNORECASE)


def name_type(name: bytes, mode: int) -> str:
    """What a file is, by its name without directories and its permissions."""
    match = _NAMED.match(name)
    if match is not None and match.lastindex is not None:
        return _TYPES[match.lastindex - 1][0]
    return EXECUTABLES if mode & 0o111 else OTHER


# What builds leave behind, by the paths of files: caches, lists, archives, documents; and the better line for each.
#
# Only what was made in the same step can be removed from an image: a later `rm` hides a file, its bytes stay.


@frozen
class LeftoverRule:
    """Files that an image can do without."""

    name: str
    title: str
    pattern: str  # searched for in the directory, `a/b/`, or in the whole path where the rule `is_of_names`
    better: str
    is_optional: bool = False
    note: str = ""
    is_of_names: bool = False


@functools.cache
def list_leftover_rules() -> tuple[LeftoverRule, ...]:
    """The rules of data/leftovers.csv: of those that fit a file the first counts, directories before names."""
    rules: tuple[LeftoverRule, ...] = read_shipped(_TABLE).read_all()
    return rules


def _make(cells: Mapping[str, str]) -> LeftoverRule:
    answers = {column: cells[column] == "yes" for column in ("is_optional", "is_of_names")}
    return LeftoverRule(**{**cells, **answers})  # type: ignore[arg-type]  # the columns are its names


_TABLE = TableKind("leftovers", "leftovers.csv", list_names(LeftoverRule), ("name",), _make)
_SUFFIXES = (".a", ".o", ".tar", ".tgz", ".tbz2", ".txz", ".whl", ".deb", ".rpm", ".run", ".iso", ".gz", ".xz", ".bz2",
             ".zst")  # fmt: skip
# Packages that compile others; what links against them is in packages without these endings.
_BUILD_TOOL = re.compile(
    r"(?:lib)?(?:gcc|g\+\+|gfortran|cpp|clang|llvm)(?:-\d[\d.]*)?(?:-dev(?:el)?)?(?:-[a-z0-9-]+-linux-gnu)?\Z"
    r"|gcc-c\+\+|build-essential|cmake(?:-data)?|ninja-build|make|binutils(?:-[a-z0-9-]+)?|bison|flex|autoconf|automake"
    r"|.+-(?:dev|devel|headers)(?:-\d[\d.-]*)?\Z|cuda-(?:nvcc|command-line-tools|libraries-dev|minimal-build).*"
)


def find_leftover(directory: str, name: str) -> LeftoverRule | None:
    """The rule that a file falls under; the directory has no leading slash."""
    rule = _find_directory_rule(directory)
    return _find_rule(f"{directory}/{name}", is_of_names=True) if rule is None and name.endswith(_SUFFIXES) else rule


@functools.lru_cache(4096)
def _find_directory_rule(directory: str) -> LeftoverRule | None:
    return _find_rule(f"{directory}/", is_of_names=False)


def _find_rule(path: str, *, is_of_names: bool) -> LeftoverRule | None:
    rules, pattern = _compile(is_of_names)
    match = pattern.search(path)
    return rules[match.lastindex - 1] if match is not None and match.lastindex is not None else None


@functools.cache
def _compile(is_of_names: bool) -> tuple[tuple[LeftoverRule, ...], re.Pattern[str]]:
    """The rules of one kind, and one pattern with a group for each."""
    rules = tuple(rule for rule in list_leftover_rules() if rule.is_of_names == is_of_names)
    return rules, re.compile("|".join(f"({rule.pattern})" for rule in rules), re.DOTALL)


def is_build_tool(package: str) -> bool:
    """Whether a package of a distribution is there to compile programs."""
    return _BUILD_TOOL.fullmatch(package) is not None
