# SPDX-License-Identifier: BSD-3-Clause
"""Every failure of the catalogue is recognised in its own messages, as programs print them, and says what to do."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from kedge.compat.failures.catalogue import CATALOGUE, EXCEPTION
from kedge.compat.failures.failure import CERTAIN, LEVELS, LIKELY, POSSIBLE, Failure
from kedge.compat.failures.find_clues import find_clues
from kedge.compat.failures.log_search import MARKS, compile_pattern
from tests.architecture.test_documents import judge_command

ALL = (*CATALOGUE, EXCEPTION)


def test_catalogue_names_each_failure_once() -> None:
    assert [name for name, count in Counter(failure.name for failure in ALL).items() if count > 1] == []


@pytest.mark.parametrize("failure", ALL, ids=lambda failure: failure.name)
def test_failure_is_the_first_that_its_own_message_is_explained_by(failure: Failure) -> None:
    assert failure.examples
    for example in failure.examples:
        assert any(mark in example.lower().encode() for mark in MARKS), f"no mark finds {example!r}"
        clue = find_clues(f"epoch 1\n{example}\nbye\n", notes=True)[0]
        assert clue.name == failure.name, example


@pytest.mark.parametrize("failure", ALL, ids=lambda failure: failure.name)
def test_failure_is_found_behind_labels_and_colours(failure: Failure) -> None:
    for label in ("0: ", " 3: ", "[1,0]<stderr>:", "[2] ", "[rank1]: "):
        text = "".join(f"{label}\x1b[1m{line}\x1b[0m\n" for line in failure.examples[0].splitlines())
        clue = find_clues(text, notes=True)[0]
        assert (clue.name, clue.rank) == (failure.name, label.strip("[]<>: rank").split(",")[-1][:1]), text


@pytest.mark.parametrize("failure", ALL, ids=lambda failure: failure.name)
def test_failure_says_what_to_do(failure: Failure) -> None:
    for text in (failure.cause, failure.remedy):
        assert text[0].islower() or not text[0].isalpha() or text.split()[0].isupper() or text[0].isupper()
        assert not text.endswith((".", " "))
        assert "  " not in text
    assert failure.source
    assert failure.level in LEVELS
    assert failure.sure in (CERTAIN, LIKELY, POSSIBLE)
    compile_pattern(failure.pattern)
    clue = find_clues(failure.examples[0], notes=True)[0]
    assert "{" not in clue.cause + clue.remedy


def test_catalogue_names_commands_that_exist() -> None:
    wrong = [
        f"{failure.name}: {command}: {problem}"
        for failure in ALL
        for command in re.findall(r"'(kedge [a-z][^']*)'", failure.cause + failure.remedy)
        if (problem := judge_command(command.split()[1:])) is not None
    ]
    assert not wrong, "\n" + "\n".join(wrong)
