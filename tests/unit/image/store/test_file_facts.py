# SPDX-License-Identifier: BSD-3-Clause
"""Facts about files in the cache: kept by key, bounded, and worthless where they are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.image.store.eviction import ItemKind
from kedge.image.store.file_digests import FileFacts
from kedge.image.store.layout import Layout
from kedge.image.store.store import Store


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


@pytest.mark.parametrize("damage", [b"", b"x", b"0" * 64 + b"{}", b"\xff" * 200])
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
