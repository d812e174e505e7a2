# SPDX-License-Identifier: BSD-3-Clause
"""Variables, quotes, escapes and patterns are replaced as BuildKit replaces them, and odd patterns take no longer."""

from __future__ import annotations

import random
import re
import time

import pytest

from kedge.builds.dockerfile.expand import (
    ExpansionError,
    ExpansionRules,
    PatternError,
    expand,
    replace_pattern,
    trim_prefix,
    trim_suffix,
)
from tests.builders.rows import each_row, with_rows

VALUES = {"a": "one", "empty": "", "two": "x  y", "path": "/usr/lib/libx.so.1", "stars": "a*b?c", "_1": "under"}
TEXTS = {
    **{"plain": "plain", "$a": "one", "${a}": "one", "x$a.y": "xone.y", "$unset|": "|", "$_1": "under", "$a1|": "|"},
    **{"$1$@$?": "", "$": "$", "$.": "$.", "\\$a": "$a", "\\\\$a": "\\one", "'$a'": "$a", '"$a b"': "one b"},
    '"\\$a \\" \\\\ \\n"': '$a " \\ \\n',
    **{"'\\n'": "\\n", "a\\nb": "anb", "end\\": "end", "'a'\"b\"c": "abc", "${unset:-w}": "w", "${empty:-w}": "w"},
    **{"${empty-w}": "", "${unset-w}": "w", "${a:-w}": "one"},
    "${a:+w}|${empty:+w}|${empty+w}|${unset+w}": "w||w|",
    "${a:?w}${a?w}${empty?w}": "oneone",
    "${unset:-${a:-w}}": "one",
    "${unset:-$a ${empty:-'q r'}}": "one q r",
    "${unset:-\\}}": "}",
    "${path#*/}": "usr/lib/libx.so.1",
    "${path##*/}": "libx.so.1",
    "${path%.*}": "/usr/lib/libx.so",
    "${path%%.*}": "/usr/lib/libx",
    "${path%%/*}|": "|",
    "${path#nothing}": "/usr/lib/libx.so.1",
    "${stars#*\\*}": "b?c",
    "${stars%\\?*}": "a*b",
    "${stars/\\*/-}": "a-b?c",
    "${path/\\/usr/-}": "-/lib/libx.so.1",
    "${path//\\//-}": "-usr-lib-libx.so.1",
    "${path//l?b/L}": "/usr/L/Lx.so.1",
    "${path/l*x/L}": "/usr/L.so.1",
    **{"${a//n/}": "oe", "${a/x/y}": "one", "${unset/x/y}|": "|", "a<b": "a<b", "a << b": "a << b"},
}


@each_row("text", TEXTS)
def test_expand_text(text: str) -> None:
    assert expand(text, VALUES).text == TEXTS[text]


@with_rows(
    *(("'a", "single quote"), ('"a', "double quote"), ('"a\\"', "double quote"), ("${", "'}' is missing")),
    *(("${a", "not a substitution"), ("${}", "bad substitution"), ("${{a}}", "bad substitution")),
    *(("${:-a}", "bad substitution"), ("${a:-b", "'}' is missing"), ("${a=b}", "not a substitution")),
    ("${a:=b}", "not a substitution"),
    ("${a:#b}", "not a substitution"),
    *(("${a^^}", "not a substitution"), ("${a/b}", "'/' is missing"), ("${unset:?}", "unset: has no value")),
    *(("${empty:?}", "empty: is empty"), ("${unset?say $a}", "unset: say one")),
    ("${a#\\x}", "not an escape"),
    ("${a:-" * 100, "too deeply"),
)
def test_expand_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ExpansionError, match=message.replace("{", "\\{").replace("}", "\\}")):
        expand(text, VALUES)


WORDS = {
    **{"a b": ["a", "b"], "  a\t b ": ["a", "b"], "$two": ["x", "y"], '"$two"': ["x  y"], "a${two}b": ["ax", "yb"]},
    **{"a\\ b": ["a b"], "'' a \"\"": ["a"], "$empty": [], "<< a b": ["<< a", "b"]},
}


@each_row("text", WORDS)
def test_expand_words(text: str) -> None:
    assert list(expand(text, VALUES).words) == WORDS[text]


@with_rows(
    (ExpansionRules(escape="`"), "`$a \\$a", "$a \\one"),
    (ExpansionRules(keeps_quotes=True), "'a' \"$a\"", "'a' \"one\""),
    (ExpansionRules(keeps_escapes=True), "a\\ b \\$a", "a\\ b \\$a"),
    (ExpansionRules(keeps_escapes=True), '"a\\b \\$a"', "a\\\\b \\$a"),
    (ExpansionRules(has_quotes=False), 'it\'s "$a"', 'it\'s "one"'),
    (ExpansionRules(keeps_unset=True), "$x ${x} ${x:-w} ${x/a/b} $a", "$x ${x} ${x:-w} ${x/a/b} one"),
)
def test_expand_rules(rules: ExpansionRules, text: str, result: str) -> None:
    assert expand(text, VALUES, rules).text == result


def test_expand_tells_which_names_were_asked_for() -> None:
    expansion = expand("$a ${x:-$y} ${empty}", VALUES)
    assert (expansion.used, expansion.missing) == ({"a", "empty"}, {"x", "y"})


def _compile(pattern: str, star: str) -> str:
    return "".join(star if letter == "*" else "." if letter == "?" else re.escape(letter) for letter in pattern)


def test_patterns_agree_with_regular_expressions() -> None:
    dice = random.Random(13)
    for _ in range(1000):
        value = "".join(dice.choices("aab.", k=dice.randrange(9)))
        pattern = "".join(dice.choices("ab.*?", k=dice.randrange(6)))
        for is_longest in (False, True):
            star = ".*" if is_longest else ".*?"
            expected = re.sub(rf"\A{_compile(pattern, star)}", "", value, count=1)
            assert trim_prefix(value, pattern, is_longest=is_longest) == expected
            backwards = re.sub(rf"\A{_compile(pattern[::-1], star)}", "", value[::-1], count=1)[::-1]
            assert trim_suffix(value, pattern, is_longest=is_longest) == backwards
        expected = re.sub(_compile(pattern, ".*"), "-", value, count=1)
        assert replace_pattern(value, pattern, "-", everywhere=False, room=99) == expected


@with_rows(
    ("aXbXc", "X", "a-b-c"), ("aaa", "aa", "-a"), ("abc", "", "-a-b-c-"), ("abab", "a*", "-"), ("abc", "?", "---")
)
def test_patterns_replace_all(value: str, pattern: str, result: str) -> None:
    assert replace_pattern(value, pattern, "-", everywhere=True, room=99) == result


@each_row("pattern", ["\\", "\\x", "a\\\\\\"])
def test_patterns_refuse_unknown_escapes(pattern: str) -> None:
    with pytest.raises(PatternError):
        trim_prefix("a", pattern, is_longest=False)


def test_patterns_with_many_stars_take_no_time() -> None:
    begin = time.process_time()
    trim_prefix("a" * 20000, "*a" * 50 + "*b", is_longest=True)
    assert time.process_time() - begin < 2
