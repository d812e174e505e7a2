# SPDX-License-Identifier: BSD-3-Clause
"""YAML of device specifications and remotes: read, refused with the line, damaged, and JSON, which is YAML too."""

from __future__ import annotations

import contextlib
import json
import random

import pytest

from kedge.base.yaml_text import YamlError, parse_yaml
from tests.builders.rows import each_row
from tests.unit.container.devices.test_cdi import NVIDIA, VENDOR


@each_row(("text", "value"), [
    ("", None),
    ("a: 1\nb:\n  c: x # y\n  d: 'it''s'\n", {"a": "1", "b": {"c": "x", "d": "it's"}}),
    ("- a\n-\n  b: c\n- - d\n  - e\n", ["a", {"b": "c"}, ["d", "e"]]),
    ("a:\n- b: 1\n  c: 2\n- b: 3\nd:\n", {"a": [{"b": "1", "c": "2"}, {"b": "3"}], "d": None}),
    ('a: "x\\ty: # z"\n', {"a": "x\ty: # z"}),
    ("a: [b, 'c, d', {e: f, g: []}]\nh: {}\n", {"a": ["b", "c, d", {"e": "f", "g": []}], "h": {}}),
    ("l: x.so.1::/usr/lib/x.so\nu: http://x#y\n", {"l": "x.so.1::/usr/lib/x.so", "u": "http://x#y"}),
    ('"quoted key": ~\n', {"quoted key": None}),
    ("a:\n  - b\n", {"a": ["b"]}),
    ("---\na: b\n...\nrest", {"a": "b"}),
])  # fmt: skip
def test_yaml_reads(text: str, value: object) -> None:
    assert parse_yaml(text) == value


@each_row(("text", "line"), [
    ("a: b\na: c\n", 2), ("a: |\n  text\n", 1), ("a: >-\n  text\n", 1), ("a: *b\n", 1), ("a: !!str b\n", 1),
    ("a: b\n\tc: d\n", 2), ("a: b\n   c: d\n", 2), ("a: 'b\n", 1), ("a: [b\n", 1), ("a: [b]]\n", 1),
    ("a: {b c}\n", 1), ("a: b: c\n", 1), ("a: b\n---\nc: d\n", 2), ("a: b\nc\n", 2), ("- a\nb: c\n", 2),
    ('a: "\\q"\n', 1), ("a: " + "[" * 50 + "]" * 50, 1), ("? a\n: b\n", 1),
])  # fmt: skip
def test_yaml_refuses_with_the_line(text: str, line: int) -> None:
    with pytest.raises(YamlError, match=f"line {line}:"):
        parse_yaml(text)


def test_yaml_damage_and_json() -> None:
    chance = random.Random(3)
    letters = "\n :-[]{}'\"#&*|>\\\tx,~"
    for _ in range(800):
        text = list(NVIDIA)
        for _ in range(chance.randint(1, 10)):
            text[chance.randrange(len(text))] = chance.choice(letters)
        with contextlib.suppress(YamlError):
            parse_yaml("".join(text))
    assert parse_yaml(json.dumps(VENDOR).replace("44", '"44"')) == json.loads(json.dumps(VENDOR).replace("44", '"44"'))
