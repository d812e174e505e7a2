# SPDX-License-Identifier: BSD-3-Clause
"""`{{ name }}` is replaced where Apptainer replaces it, and nowhere else."""

from __future__ import annotations

import time

import pytest

from kedge.builds.definition.arguments import expand_arguments
from kedge.builds.definition.definition import Definition, parse_stage
from kedge.errors import InvalidRecipe
from tests.builders.matrices import EVERY
from tests.builders.rows import with_rows
from tests.wording import assert_reads

HEADER = "Bootstrap: docker\nFrom: debian:{{ TAG }}\n"


def expand(text: str, **given: str) -> str:
    return expand_arguments(Definition("x.def", text), given).text


@with_rows(
    ("{{a}} {{ a }} {{\n a\t}}", "1 1 1"),
    ("{{ a }}{{b}}", "12"),
    ("{ {a} } {{a b}} {{}} {{a}", "{ {a} } {{a b}} {{}} {{a}"),
    ("# {{ a }}\n{{ a }}", "# {{ a }}\n1"),
    ("x # {{ a }} {{ a }}\n{{ b }}", "x # {{ a }} {{ a }}\n2"),
    ("x#y {{ a }}", "x#y {{ a }}"),
    ("#{{ a }}", "#1"),
    ("#!/bin/{{ a }}", "#!/bin/1"),
    ("{{ a }} # {{ b }}", "1 # {{ b }}"),
    ("# x\n\n{{ a }}", "# x\n\n1"),
    ("# x\r\n{{ a }}", "# x\r\n1"),
)
def test_arguments_are_replaced(text: str, expected: str) -> None:
    assert expand(text, a="1", b="2") == expected


@with_rows(("{{ b }}-{{b}}", "2-2"), ("{{ c }}", "{{ b }}"), ("{{ unknown }}", "{{ unknown }}"), ("{{ a }}", "{{ a }}"))
def test_arguments_values_name_others_one_level_deep(value: str, expected: str) -> None:
    assert expand("{{ a }}", a=value, b="2", c="{{ b }}") == expected


def test_arguments_defaults_are_of_the_stage() -> None:
    text = HEADER + "%arguments\n  TAG = 12 # newest\n# TAG=11\nnothing\n=x\nA==b\n%post\necho {{ A }}\n"
    stage = parse_stage(text, "x.def")
    expanded = expand_arguments(stage, {})
    assert "From: debian:12 # newest\n" in expanded.text
    assert expanded.text.endswith("echo =b\n")
    assert expanded.used == {"TAG", "A"}
    assert [warning.split(": ")[0] for warning in expanded.warnings] == ["x.def:6:1", "x.def:7:1"]
    assert "From: debian:13\n" in expand_arguments(stage, {"TAG": "13"}).text


def test_arguments_without_value_are_refused_or_stay() -> None:
    with pytest.raises(InvalidRecipe) as caught:
        expand_arguments(Definition("x.def", HEADER, 10), {})
    assert_reads(caught.value.message, "build/x-def-build-argument-tag")
    assert "--build-arg TAG=VALUE" in str(caught.value.hint)
    expanded = expand_arguments(Definition("x.def", HEADER + "{{ TAG }}"), {}, keeps_undefined=True)
    assert expanded.text == HEADER + "{{ TAG }}"
    assert expanded.warnings == ("x.def:2:14: the build argument 'TAG' has no value",)


@EVERY
def test_arguments_take_linear_time(is_every: bool) -> None:
    size = 50_000 if is_every else 10_000
    for text in ("# " + "{{ a }}" * 2 * size, "{{ a }}" * 2 * size, "{{ a }}\n" * size, "{{" * 4 * size):
        began = time.process_time()
        expand(text, a="1")
        assert time.process_time() - began < 1 + size / 12_500, text[:20]
