# SPDX-License-Identifier: BSD-3-Clause
"""Each sentence of tests/golden/wording is asserted by a test, and each that a test asserts is there, with its values.

And each stands there once.
"""

from __future__ import annotations

import ast
import collections
import re
from collections.abc import Iterator

from tests import wording
from tests.requirements import REPOSITORY

ASSERTION = re.compile(r"^ *assert_(says|reads|begins|ends)\(")
OWN_SENTENCES = REPOSITORY / "tests" / "unit" / "test_wording.py"


def list_asserted() -> Iterator[tuple[str, str, int | None]]:
    """Where a sentence is asserted, its name, and with how many values, where that is plain."""
    for path in sorted((REPOSITORY / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "from tests.wording import" not in text or path == OWN_SENTENCES:
            continue
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if ASSERTION.match(line):
                arguments = parse_call(lines[number:]).args
                plain = not any(isinstance(each, ast.Starred) for each in arguments)
                where = f"{path.relative_to(REPOSITORY)}:{number + 1}"
                yield where, ast.literal_eval(arguments[1]), len(arguments) - 2 if plain else None


def parse_call(lines: list[str]) -> ast.Call:
    """The call that these lines begin with; to parse whole files would take seconds."""
    for end in range(1, len(lines) + 1):
        try:
            return ast.parse("\n".join(lines[:end]).strip()).body[0].value
        except SyntaxError:
            continue
    raise AssertionError(lines[0])


def test_wording_sentences_are_there_and_asserted() -> None:
    asserted: dict[str, list[tuple[str, int | None]]] = collections.defaultdict(list)
    for where, name, count in list_asserted():
        asserted[name].append((where, count))
    sentences: dict[str, str] = {}
    for path in sorted(wording.GOLDEN.glob("*.toml")):
        sentences |= wording.read_subject(path.stem)
    wrong = [f"{name}: no test asserts it: remove it" for name in sentences if name not in asserted]
    for name, places in asserted.items():
        for where, count in places:
            if name not in sentences:
                wrong.append(f"{where}: {name} is in no file of tests/golden/wording")
            elif count is not None and not wording.has_places(sentences[name], (None,) * count):
                wrong.append(f"{where}: {name} is given {count} values, and is: {sentences[name]}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_wording_no_sentence_stands_twice() -> None:
    names: dict[str, list[str]] = collections.defaultdict(list)
    for path in sorted(wording.GOLDEN.glob("*.toml")):
        for name, sentence in wording.read_subject(path.stem).items():
            names[sentence].append(name)
    wrong = [f"{' and '.join(each)}: {sentence}" for sentence, each in names.items() if len(each) > 1]
    assert not wrong, "\n" + "\n".join(wrong)
