# SPDX-License-Identifier: BSD-3-Clause
"""Patterns of `.dockerignore` and wildcards of COPY, by tables and against a slow, plain reading of the rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kedge.builds import patterns
from tests.builders.rows import each_row, with_rows


@with_rows(
    ("a", "a", "b"),
    ("*", "a a/b", ""),  # a directory above it matches
    ("*.txt", "a.txt", "d/a.txt"),
    ("**/*.txt", "a.txt d/a.txt d/e/a.txt", ""),
    *(("**", "d/e/a.txt", ""), ("**/", "d/e", ""), ("d/**", "d/e d/e/f", "d"), ("a**/c", "ab/c", "")),
    *(("d/**/f", "d/f d/e/f d/e/e/f", "d/e/fx"), ("**/f", "f d/f/g", "xf"), ("**f", "d/f", "d/xf")),
    *(("d/*/f", "d/e/f", "d/e/e/f"), ("?", "a", "ab"), ("d?e", "", "d/e"), (r"\*", "*", "a")),
    *(("[a-c]", "b", "d"), ("[^a-c]", "d", "a"), ("a.b", "", "axb"), ("a+b", "a+b", ""), ("dé*", "déf", "")),
    ("a(b)|c{d}$", "a(b)|c{d}$", ""),
    *((pattern, "a", "") for pattern in ("/a", "a/", "./a", "d/../a")),
    *(("d", "d/e/f", ""), ("d/e", "", "d")),
)
def test_ignore_pattern(pattern: str, matching: str, others: str) -> None:
    read = patterns.parse_ignore_lines([pattern])
    assert [path for path in matching.split() if not read.leaves_out(path)] == []
    assert [path for path in others.split() if read.leaves_out(path)] == []


@with_rows(
    ("*\n!a", ["b", "c/d"], ["a", "a/b"]),
    ("d\n!d/e", ["d", "d/f"], ["d/e", "d/e/g"]),
    ("d\n!d/e\nd/e/g", ["d/e/g"], ["d/e/h"]),
    ("*.md\n!README*.md\nREADME-secret.md", ["a.md", "README-secret.md"], ["README.md", "README-x.md"]),
    ("*.md\nREADME-secret.md\n!README*.md", ["a.md"], ["README-secret.md"]),
    ("# a\n#b\n\n \n\\#c", ["#c"], ["a", "b", "# a", "#b"]),
    *(("\ufeffa\r\nb\r\n", ["a", "b"], ["a\r"]), (" a \n! b ", ["a"], ["b"])),
    *(("**\n!d/*/f", ["d/e", "d/e/g"], ["d/e/f"]), ("!a\n*", ["a"], [])),
)
def test_ignore_file(text: str, left: list[str], kept: list[str]) -> None:
    read = patterns.parse_ignore_file(text)
    assert [path for path in left if not read.leaves_out(path)] == []
    assert [path for path in kept if read.leaves_out(path)] == []


@with_rows(
    *(("*\n!a/b/c", "a", True), ("*\n!a/b/c", "a/b", True), ("*\n!a/b/c", "b", False), ("*\n!a/b/c", "a/c", False)),
    *(("*\n!a", "a/b", False), ("*\n!**/x", "any/where", True), ("*\n!a/*/x", "a/b", True)),
    *(("*\n!a/*/x", "b/b", False), ("*", "a", False)),
)
def test_ignore_directory_that_need_not_be_walked(text: str, path: str, may: bool) -> None:
    assert patterns.parse_ignore_file(text).may_take_back_below(path) is may


@each_row("text", ["!", "[", "a[", "a[]", "a[b-]", "a[b", "[-a]", "[^]"])
def test_ignore_refuses_what_cannot_be_read(text: str) -> None:
    with pytest.raises(patterns.BadPattern):
        patterns.parse_ignore_file(text)


NAMES = some.sampled_from(["a", "b", "ab", "a.b"])
PATHS = some.lists(NAMES, min_size=1, max_size=4).map("/".join)
PARTS = some.sampled_from(["a", "b", "*", "**", "?", "a*", "*b", "[ab]", "[^a]"])
PATTERNS = some.builds(
    lambda back, parts: ("!" if back else "") + "/".join(parts),
    some.booleans(),
    some.lists(PARTS, min_size=1, max_size=3),
)


def read_slowly(pattern: str, path: str) -> bool:
    """The rules as Docker's documents say them: any number of names for `**`, the rest name by name."""
    return match_names(pattern.split("/"), path.split("/"))


def match_names(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(path)
        return any(match_names(pattern[1:], path[count:]) for count in range(len(path)))
    expression = pattern[0].replace(".", r"\.").replace("*", "[^/]*").replace("?", "[^/]")
    return bool(path) and re.fullmatch(expression, path[0]) is not None and match_names(pattern[1:], path[1:])


@given(some.lists(PATTERNS, max_size=4), PATHS)
def test_ignore_agrees_with_a_slow_reading(lines: list[str], path: str) -> None:
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    expected = False
    for line in lines:
        if any(read_slowly(line.removeprefix("!"), one) for one in above):
            expected = not line.startswith("!")
    read = patterns.parse_ignore_lines(lines)
    assert read.leaves_out(path) is expected
    if not expected:  # then no directory above may be passed over
        for folder in above[:-1]:
            assert not read.leaves_out(folder) or read.may_take_back_below(folder)


@with_rows(
    *(("*", "abc", True), ("*c", "abc", True), ("a*", "ab/c", False), ("a*b*c*d*e", "axbxcxdxexxxe", True)),
    *(("a?c", "abc", True), ("a[b-d]e", "ace", True), ("a[^b]c", "abc", False), (r"a\*b", "a*b", True)),
    *((r"a[\]]b", "a]b", True), (r"a[\-]b", "a-b", True), ("[a-]", "a", None), ("[]a]", "a", None)),
    *(("[b-a]", "a", False), ("a[", "a", None), ("a\\", "a", None), ("*", "new\nline", True)),
)
def test_wildcard(pattern: str, name: str, matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(patterns.BadPattern):
            patterns.compile_wildcard(pattern)
    else:
        assert bool(patterns.compile_wildcard(pattern).fullmatch(name)) is matches


@given(some.text(alphabet="ab*?[]\\^-/", max_size=8))
def test_wildcard_of_an_escaped_text_matches_it_alone(text: str) -> None:
    assert not patterns.has_wildcard(patterns.escape(text))
    assert patterns.unescape(patterns.escape(text)) == text
    assert patterns.compile_wildcard(patterns.escape(text)).fullmatch(text)
