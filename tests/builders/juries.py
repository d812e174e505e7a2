# SPDX-License-Identifier: BSD-3-Clause
"""Many trees in one test: each is written and read by all, and what failed is listed at the end by its seed.

`TREES=4711` in the environment takes that one tree, `TREES=1000-2000` all from the one up to the other.
"""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.generated_trees import Tree, expect
from tests.builders.image_judges import (
    Unreadable,
    find_differences,
    leave_out_links,
    see_by_kedge,
    see_by_kernel,
    see_by_squashfuse,
    see_by_unsquashfs,
)
from tests.builders.judged_trees import Seen

SHOWN = 10  # failures that are told in full
ENOUGH = 30  # failures after which a group ends: readers may take a minute for each
LONG = 300  # trees from which on a test is a long one, and tries other trees than the short one does
LONG_FROM = 1_000_000


def choose_seeds(count: int) -> range:
    """The seeds of a test with so many trees: what the environment says, else the same every time."""
    chosen = os.environ.get("TREES", "")
    if chosen:
        first, _, last = chosen.partition("-")
        return range(int(first), int(last or first) + 1)
    start = 0 if count < LONG else LONG_FROM
    return range(start, start + count)


class Jury:
    """Collects the verdicts of one group of trees; `tell` fails the test with them."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.failed: list[str] = []

    def try_each(self, seeds: range, check: Callable[[int], None]) -> None:
        """Check tree by tree; an exception of the writer is a failure as well."""
        for seed in seeds:
            if len(self.failed) >= ENOUGH:
                return
            self.tried["trees"] += 1
            try:
                check(seed)
            except Exception:
                self._note(seed, "cannot be written", traceback.format_exc(limit=-3))

    def compare(self, seed: int, reader: str, wanted: Seen, see: Callable[[], Seen]) -> None:
        """Ask a reader, and compare."""
        self.tried[reader] += 1
        try:
            wrong = find_differences(see(), wanted)
        except Unreadable as problem:
            self._note(seed, f"cannot be read by {reader}", str(problem))
            return
        if wrong:
            self._note(seed, f"is different for {reader}", "\n  ".join(wrong))

    def _note(self, seed: int, verdict: str, details: str) -> None:
        self.failed.append(f"tree {seed} {verdict} (TREES={seed} repeats it):\n  {details}")

    def tell(self, record: Callable[[str, object], None]) -> None:
        """The counts for the report; fails where a tree did."""
        for name, count in self.tried.items():
            record(name, count)
        record("failures", len(self.failed))
        assert self.tried["trees"], "no tree was tried"
        shown = "\n".join(self.failed[:SHOWN])
        assert not self.failed, f"{len(self.failed)} failures among {self.tried}:\n{shown}"


def each_tree(few: int, many: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test is called with a jury and each of a few seeds; in `make test-all` with many others, too."""
    counts = [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.long)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def of_all_trees(count: int, record_property: Callable[[str, object], None], **fixtures: Any) -> None:
            jury = Jury()
            jury.try_each(choose_seeds(count), lambda seed: test(jury=jury, seed=seed, **fixtures))
            jury.tell(record_property)

        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in ("jury", "seed")]
        own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("count", "record_property")]
        of_all_trees.__signature__ = signature.replace(parameters=[*fixtures, *own])  # type: ignore[attr-defined]
        return pytest.mark.parametrize("count", counts)(of_all_trees)

    return decorate


def judge_image(jury: Jury, seed: int, image: Path, tree: Tree, block: int) -> None:
    """Let all readers look that can: two at every image, the kernel at every second, squashfuse at every fourth."""
    wanted, place, is_root = expect(tree), image.parent, os.geteuid() == 0
    jury.compare(seed, "kedge", wanted, lambda: see_by_kedge(image))
    if is_root:
        jury.compare(seed, "unsquashfs", wanted, lambda: see_by_unsquashfs(image, place))
    if is_root and seed % 2 == 0:
        jury.compare(seed, "kernel", wanted, lambda: see_by_kernel(image, place, tree, block))
    if seed % 4 == 1 or not is_root:
        jury.compare(seed, "squashfuse", leave_out_links(wanted), lambda: see_by_squashfuse(image, place))
    image.unlink()
