# SPDX-License-Identifier: BSD-3-Clause
"""A recipe that goes to the other kind and back keeps its stages, their bases and what they copy from each other."""

from __future__ import annotations

import time

import pytest

from kedge.builds.read_recipe import read_recipe
from kedge.builds.recipe_files import convert_recipe
from kedge.errors import InvalidRecipe
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row

DEFINITION = """Bootstrap: docker
From: debian:{{ TAG }}
Stage: builder
%arguments
TAG=12
%post
make
Bootstrap: docker
From: debian:12-slim
%files from builder
/x
%post
a && b || c
%environment
export A="b c" PATH=/x:$PATH
%runscript
exec x "$@"
"""
DOCKERFILE = """ARG TAG=12
FROM debian:${TAG} AS builder
RUN cd /x && make
FROM debian:12-slim
COPY --from=builder /x /
ENV A="b c" PATH=/x:$PATH
RUN a && \\
    b
ENTRYPOINT ["x"]
CMD ["y z"]
"""


def describe(recipe) -> list[tuple[str, str, str, tuple[int, ...]]]:
    return [(stage.name, stage.base.agent, stage.base.reference, stage.needs) for stage in recipe.stages]


@each_row(("text", "kind"), [(DEFINITION, "definition"), (DOCKERFILE, "dockerfile")])
def test_round_trip_keeps_the_graph(text: str, kind: str) -> None:
    first = convert_recipe(text, "x", kind)
    back = convert_recipe(first.text, "x", first.kind)
    assert back.kind == kind
    graphs = [describe(read_recipe(each.encode(), "x")) for each in (text, first.text, back.text)]
    assert graphs[0] == graphs[1] == graphs[2]
    again = convert_recipe(back.text, "x", back.kind)
    assert describe(read_recipe(again.text.encode(), "x")) == graphs[0]


def test_round_trip_keeps_the_config() -> None:
    back = convert_recipe(convert_recipe(DOCKERFILE, "x", "dockerfile").text, "x", "definition")
    section = read_recipe(back.text.encode(), "x").target.plan({"Env": ["PATH=/bin"]}).section
    assert (section["Entrypoint"], section["Cmd"], section["Env"]) == (["x"], ["y z"], ["PATH=/x:/bin", "A=b c"])


@each_row("kind", ["definition", "dockerfile"])
def test_convert_bad_recipes_are_refused(kind: str) -> None:
    with pytest.raises(InvalidRecipe):
        convert_recipe("hello\n", "x", kind)


@EVERY
def test_convert_takes_linear_time(is_every: bool) -> None:
    size, base = 5_000 if is_every else 1_000, "Bootstrap: docker\nFrom: x\n"
    for text, kind in (
        (base + "%runscript\n" + "a" * 4 * size + '; b "$@"\n', "definition"),
        (base + "%environment\nexport A=" + "$B" * 4 * size + "(\n", "definition"),
        ("FROM x\nRUN a" + " " * 10 * size + "&& b\n", "dockerfile"),
        *((f"FROM x\nRUN {word * 2 * size}{end}\n", "dockerfile") for word, end in (("a && ", "b"), ("$(", ""))),
        ("FROM x\n" + "ENV A=$A\n" * size, "dockerfile"),
    ):
        began = time.process_time()
        convert_recipe(text, "x", kind)
        assert time.process_time() - began < 1 + size / 1_250, text[:60]
