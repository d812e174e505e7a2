# SPDX-License-Identifier: BSD-3-Clause
"""`--needs` and `--variant`: which tags have what somebody asks for, and of which that is unknown."""

from __future__ import annotations

import pytest

from kedge.compat.contents.needs import VARIANTS, choose_by_needs, has_variant, is_before_release, read_need
from kedge.compat.tables.load import load_tables
from kedge.compat.tables.rows import NgcRelease
from kedge.errors import UsageError
from tests.builders.rows import each_row

ROW = NgcRelease(
    "r.io/x", "24.03-py3", framework="PyTorch", framework_version="2.3.0a0+40ec", python="3.10.12", apex="yes"
)


@each_row(("need", "answer"), [
    ("pytorch>=2.3", True), ("torch >= 2.4", False), ("PyTorch>=2.1,<2.4", True), ("pytorch", True),
    ("tensorflow", False), ("tensorflow>=2", False), ("python=3.10", True), ("python 3.10", True),
    ("python==3.1", False), ("python>3.10.13", False), ("cuda>=12", None), ("apex", True), ("apex>=0.1", None),
    ("dali", None), ("open-mpi=4.1", None),
])  # fmt: skip
def test_needs_of_one_tag(need: str, answer: bool | None) -> None:
    assert read_need(need).holds(ROW) is answer


@each_row("text", ["", "foo", "foo>=1", ">=2.3", "python=three", "python>=3.10 or so", "pytorch>=\x1b[31m"])
def test_needs_that_nobody_understands(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_need(text)
    assert caught.value.hint


def test_needs_choose_what_is_known_and_count_what_is_not() -> None:
    rows = load_tables().list_releases("nvcr.io/nvidia/pytorch")
    needs = [read_need("pytorch>=2.3"), read_need("python=3.10")]
    answer = choose_by_needs(rows, needs)
    assert answer.tags == tuple(f"24.{month:02}-py3" for month in range(10, 1, -1))
    by_tag = {row.tag: row for row in rows}
    unsure = [row for row in rows if None in {need.holds(row) for need in needs}]
    unsure = [row for row in unsure if False not in {need.holds(row) for need in needs}]
    assert answer.left_out == len(unsure) == 6
    assert answer.unknown == {"PyTorch": 5, "Python": 6}
    assert all(by_tag[tag].framework_version >= "2.3" for tag in answer.tags)


def test_needs_tell_builds_of_before_a_release() -> None:
    assert is_before_release(ROW, [read_need("pytorch>=2.3")])
    assert not is_before_release(ROW, [read_need("python=3.10")])


@each_row(("tag", "variant"), [
    ("12.4.1-base-ubuntu22.04", "base"), ("12.4.1-runtime-ubuntu22.04", "runtime"),
    ("12.4.1-devel-ubuntu22.04", "devel"), ("12.4.1-cudnn-devel-ubuntu22.04", "cudnn"),
    ("11.8.0-cudnn8-runtime-ubuntu22.04", "cudnn"),
])  # fmt: skip
def test_variants_of_a_tag(tag: str, variant: str) -> None:
    assert [name for name in VARIANTS if has_variant(tag, name)] == [variant]
