# SPDX-License-Identifier: BSD-3-Clause
"""What builds leave behind, by the paths of files: caches, lists, archives, documents; and the better line for each.

Only what was made in the same step can be removed from an image: a later `rm` hides a file, its bytes stay.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from kedge.base.frozen import frozen, list_names
from kedge.compat.tables.columns import TableKind
from kedge.compat.tables.load import read_shipped


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
