# SPDX-License-Identifier: BSD-3-Clause
"""Facts about files, and digests of context files, in the cache: bounded, and worthless where they are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.image.store.eviction import ItemKind
from kedge.image.store.file_digests import FileDigests, FileIdentity
from kedge.image.store.file_facts import FileFacts
from kedge.image.store.layout import Layout
from kedge.image.store.store import Store
from tests.builders.rows import each_row


@pytest.fixture
def facts(tmp_path: Path) -> FileFacts:
    return FileFacts(Layout(tmp_path / "cache"), "/images/app.sif")


def test_facts_are_found_by_subject_and_key(facts: FileFacts, tmp_path: Path) -> None:
    facts.keep("state 1", {"mpi": ["Open MPI"]})
    facts.keep("state 2", [])
    again = FileFacts(Layout(tmp_path / "cache"), "/images/app.sif")
    assert (again.find("state 1"), again.find("state 2"), again.find("state 3")) == ({"mpi": ["Open MPI"]}, [], None)
    assert FileFacts(Layout(tmp_path / "cache"), "/images/other.sif").find("state 1") is None


def test_the_oldest_rows_go(facts: FileFacts) -> None:
    for number in range(40):
        facts.keep(f"state {number}", number)
    kept = [number for number in range(40) if facts.find(f"state {number}") is not None]
    assert kept == list(range(24, 40))


@each_row("damage", [b"", b"x", b"0" * 64 + b"{}", b"\xff" * 200])
def test_a_damaged_file_has_none_and_is_replaced(facts: FileFacts, tmp_path: Path, damage: bytes) -> None:
    facts.keep("state", 1)
    (path,) = (tmp_path / "cache/facts").iterdir()
    path.write_bytes(damage)
    assert facts.find("state") is None
    facts.keep("state", 2)
    assert facts.find("state") == 2


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, and no directory")
    facts = FileFacts(Layout(tmp_path / "cache"), "subject")
    facts.keep("state", 1)
    assert facts.find("state") is None


def test_facts_are_items_of_the_cache(facts: FileFacts, tmp_path: Path) -> None:
    facts.keep("state", 1)
    with Store(tmp_path / "cache") as store:
        assert [item.kind for item in store.entries()] == [ItemKind.FACT]


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


@each_row("index", range(5))
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


@each_row("cut", [0, 1, 30, -1])
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
