# SPDX-License-Identifier: BSD-3-Clause
"""Variables, quotes and escapes are replaced as BuildKit replaces them."""

from __future__ import annotations

import pytest

from kedge.builds.dockerfile.expand import ExpansionError, ExpansionRules, expand
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
    (ExpansionRules(has_quotes=False), 'it\'s "$a"', 'it\'s "one"'),
    (ExpansionRules(keeps_unset=True), "$x ${x} ${x:-w} ${x/a/b} $a", "$x ${x} ${x:-w} ${x/a/b} one"),
)
def test_expand_rules(rules: ExpansionRules, text: str, result: str) -> None:
    assert expand(text, VALUES, rules).text == result


def test_expand_tells_which_names_were_asked_for() -> None:
    expansion = expand("$a ${x:-$y} ${empty}", VALUES)
    assert (expansion.used, expansion.missing) == ({"a", "empty"}, {"x", "y"})
