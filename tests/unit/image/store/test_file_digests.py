# SPDX-License-Identifier: BSD-3-Clause
"""Digests of context files: remembered for files that stayed the same, and for no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.image.store.file_digests import FileDigests, FileIdentity
from kedge.image.store.layout import Layout

DIGEST = "ab" * 32
OLD: FileIdentity = (66306, 2**64 - 1, 12, -5, 10**18)
NOW = 2 * 10**18


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "cache")


def test_digests_outlive_the_build(layout: Layout) -> None:
    FileDigests(layout, "/work").add({OLD: DIGEST}, NOW)
    assert FileDigests(layout, "/work").find([OLD]) == {OLD: DIGEST}


def test_another_context_knows_nothing(layout: Layout) -> None:
    FileDigests(layout, "/work").add({OLD: DIGEST}, NOW)
    assert FileDigests(layout, "/other").find([OLD]) == {}


@pytest.mark.parametrize("index", range(5))
def test_whatever_differs_is_another_file(layout: Layout, index: int) -> None:
    digests = FileDigests(layout, "/work")
    digests.add({OLD: DIGEST}, NOW)
    numbers = list(OLD)
    numbers[index] = 7
    other = (numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])
    assert digests.find([other]) == {}


def test_a_file_that_changed_just_now_is_not_remembered(layout: Layout) -> None:
    young = (*OLD[:4], NOW - 10**9)
    FileDigests(layout, "/work").add({young: DIGEST}, NOW)
    assert FileDigests(layout, "/work").find([young]) == {}


def test_a_later_build_adds_to_what_is_known(layout: Layout) -> None:
    other = (1, 2, 3, 4, 5)
    FileDigests(layout, "/work").add({OLD: DIGEST}, NOW)
    FileDigests(layout, "/work").add({other: DIGEST}, NOW)
    assert set(FileDigests(layout, "/work").find([OLD, other])) == {OLD, other}


@pytest.mark.parametrize("cut", [0, 1, 30, -1])
def test_a_damaged_table_is_an_empty_one(layout: Layout, cut: int) -> None:
    FileDigests(layout, "/work").add({OLD: DIGEST}, NOW)
    (path,) = (layout.root / "digests").iterdir()
    path.write_bytes(path.read_bytes()[:cut])
    assert FileDigests(layout, "/work").find([OLD]) == {}


def test_a_changed_digest_is_noticed(layout: Layout) -> None:
    FileDigests(layout, "/work").add({OLD: DIGEST}, NOW)
    (path,) = (layout.root / "digests").iterdir()
    path.write_bytes(path.read_bytes().replace(b"\xab\xab", b"\xab\xac", 1))
    assert FileDigests(layout, "/work").find([OLD]) == {}


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    digests = FileDigests(Layout(tmp_path / "cache"), "/work")
    digests.add({OLD: DIGEST}, NOW)
    assert digests.find([OLD]) == {OLD: DIGEST}
