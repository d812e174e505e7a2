# SPDX-License-Identifier: BSD-3-Clause
"""Names of output files: whatever a job is called, the file has a name that is one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.output_pattern import fill_pattern, make_file_name
from tests.builders.rows import with_rows


@with_rows(
    ("train", "train"),
    ("train-v1.2_x+y=3,4@5", "train-v1.2_x+y=3,4@5"),
    *(("höhe日本", "höhe日本"), ("a/b %j $x\n{id}", "a_b__j__x__id_"), ("..", "__"), ("", "_")),
)
def test_file_name_is_the_name_where_it_can_be(name: str, expected: str) -> None:
    assert make_file_name(name) == expected


@given(st.text(max_size=400))
def test_file_name_is_one_part_of_a_path(name: str) -> None:
    made = make_file_name(name)
    assert made not in (".", "..", "")
    assert not set(made) & set("/%$\\:\0\n{} \"'")
    assert len(made.encode()) <= 150


def test_pattern_is_filled() -> None:
    pattern = "/d{x}/{name}-{id}_{index}.{foo}"
    assert fill_pattern(pattern, name="a/b", id="7", index=3) == "/d{x}/a_b-7_3.{foo}"
    assert fill_pattern("{id}{index}", name="n", id="7", index=None) == "7"
