# SPDX-License-Identifier: BSD-3-Clause
"""Files of a recipe meet those of the base: kept, replaced, lengthened or merged."""

from __future__ import annotations

import json

from kedge.builds.definition.settle_files import settle_files
from kedge.builds.step_values import RecipePlace, TreeFile, WriteFilesStep
from tests.builders.rows import each_row, with_rows

PLACE = RecipePlace("x.def", 1)
LABELS = "/.singularity.d/labels.json"


def settle(tree: dict[str, bytes], *files: TreeFile) -> tuple[dict[str, bytes], tuple[str, ...]]:
    settled = settle_files(WriteFilesStep(PLACE, "", files), tree.get)
    assert {file.way for file in settled.files} <= {"write"}
    return {file.path: file.data for file in settled.files}, settled.removed


@with_rows(
    *(("write", b"old", b"new"), ("keep", b"old", None), ("keep", None, b"new"), ("append", b"old", b"oldnew")),
    ("append", None, b"new"),
)
def test_settle_one_file(way: str, old: bytes | None, expected: bytes | None) -> None:
    written, _ = settle({} if old is None else {"/a": old}, TreeFile("/a", b"new", way=way))
    assert written.get("/a") == expected


def test_settle_labels_of_base_recipe_and_post() -> None:
    tree = {LABELS: b'{"a": "base", "b": "base", "n": 1}', "/.build.labels": b"c post\nb post\nx y z\n"}
    recipe = TreeFile(LABELS, b'{"a": "recipe", "c": "recipe"}', way="labels")
    automatic = TreeFile(LABELS, b'{"x": "kedge"}', way="labels")
    written, removed = settle(tree, recipe, automatic)
    assert json.loads(written[LABELS]) == {"a": "recipe", "b": "post", "c": "post", "x": "kedge"}
    assert removed == ("/.build.labels",)


@each_row("broken", [b"", b"[", b"[1]", b"\xff", b'"a"'])
def test_settle_broken_labels_count_as_none(broken: bytes) -> None:
    written, removed = settle({LABELS: broken}, TreeFile(LABELS, b'{"a": "b"}', way="labels"))
    assert (json.loads(written[LABELS]), removed) == ({"a": "b"}, ())


def test_settle_old_definitions_go_into_history() -> None:
    path, history = "/.singularity.d/Singularity", "/.singularity.d/bootstrap_history"
    tree = {path: b"old", f"{history}/Singularity0": b"older"}
    written, _ = settle(tree, TreeFile(path, b"new", way="history"))
    assert written == {path: b"new", f"{history}/Apptainer1": b"old"}
