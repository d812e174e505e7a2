# SPDX-License-Identifier: BSD-3-Clause
"""Which kind a recipe is, and how its bytes become text."""

from __future__ import annotations

import pytest

from kedge.builds.read_recipe import decode_recipe, find_kind, read_recipe
from kedge.builds.step_values import BuildArguments
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row, with_rows

DEFINITION = b"Bootstrap: docker\nFrom: debian\n"
DOCKERFILE = b"FROM debian\n"


@with_rows(
    *(("a.def", "definition"), ("dir.d/Singularity", "definition"), ("Singularity.gpu", "definition")),
    *(("Apptainer", "definition"), ("Definition.nbody", "definition"), ("Dockerfile", "dockerfile")),
    *(("dir/Dockerfile.mpi", "dockerfile"), ("Containerfile", "dockerfile"), ("gpu.dockerfile", "dockerfile")),
    ("x/gpu.Dockerfile", "dockerfile"),
)
def test_kind_by_name(name: str, kind: str) -> None:
    assert find_kind("", name) == kind


@each_row(
    ("text", "kind"),
    [
        *(("bootstrap: docker\n", "definition"), ("# comment\n\n  From : debian\n", "definition")),
        *(("%post\n", "definition"), ("# syntax=docker/dockerfile:1\n", "dockerfile")),
        *(("# comment\nARG A=1\n", "dockerfile"), ("from debian\r\n", "dockerfile")),
        ("FROM \\\n debian", "dockerfile"),
    ],
)
@each_row("name", ["recipe", "Dockerfile.def", "dockerfiles", "definitions.txt"])
def test_kind_by_content(text: str, kind: str, name: str) -> None:
    assert find_kind(text, name) == kind


@each_row("text", ["", "hello\n", "# only a comment", "RUN make"])
def test_kind_is_unknown(text: str) -> None:
    with pytest.raises(InvalidRecipe, match="neither a definition file nor a Dockerfile"):
        find_kind(text, "recipe")


@with_rows(
    (b"\xef\xbb\xbfa", "a"), (b"\xff a \xe9", "\udcff a \udce9"), ("é".encode("utf-16"), "é"), (b"a\r\nb", "a\r\nb")
)
def test_bytes_become_text(data: bytes, text: str) -> None:
    assert decode_recipe(data, "x") == text


@each_row("data", [b"\x7fELF\0\0", b"\xff\xfea"])
def test_binary_files_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecipe, match="x:1:1: this is a binary file"):
        read_recipe(data, "x")


def test_read_recipes_of_both_kinds() -> None:
    assert read_recipe(b"\xef\xbb\xbf" + DEFINITION, "x").kind == "definition"
    assert read_recipe(DOCKERFILE, "x").kind == "dockerfile"
    assert read_recipe(DEFINITION, "Dockerfile", kind="definition").kind == "definition"
    recipe = read_recipe(DEFINITION + b"%post\necho \xe9\n", "x.def")
    scripts = [getattr(step, "script", None) for step in recipe.target.plan({}).steps]
    assert any(script is not None and script.data == b"echo \xe9\n" for script in scripts)
    text = DEFINITION + b"Stage: one\n" + DEFINITION
    assert len(read_recipe(text, "x", BuildArguments(target="one")).stages) == 1
    assert len(read_recipe(text, "x", BuildArguments(target="1")).stages) == 2
    with pytest.raises(InvalidRecipe, match="unknown stage 'two'"):
        read_recipe(text, "x", BuildArguments(target="two"))
