# SPDX-License-Identifier: BSD-3-Clause
"""Every failure of the catalogue is recognised in its own messages, as programs print them, and says what to do."""

from __future__ import annotations

import itertools
import re
from collections import Counter

from kedge.compat.failures.catalogue import SHIPPED, Clue, Failure, read_failures
from kedge.compat.failures.find_clues import find_clues
from tests.architecture.test_documents import judge_command

ALL, MARKS = read_failures(SHIPPED)
EXAMPLES = [(failure, example) for failure in ALL for example in failure.examples]
NAMES = {"Gloo", "Grid", "Lightning", "Open", "Python", "Pyxis", "Slurm"}
TYPED = re.compile(r"'[^']+'|(?<!\w)--?[a-z][\w-]+|\w=|/\w+|#!|\$\(|[A-Z]{3,}_[A-Z]|pip install")
TO_DO = {"install", "look", "read", "run", "tell", "try", "use"}
NOTHING_TO_DO = {
    "forward-mode",  # programs run
    "kedge-refused",  # the remedy is that of the message
    "errors-are-fatal",  # the lines around it say
}
_ARCHITECTURE = re.compile(r"\b(?:sm|compute)_(\d{1,2})(\d)")  # told as people know it: 8.6


def _find_own_word(failure: Failure) -> str | None:
    """What it says of a group that a message leaves out, where that is more than that it is unknown."""
    return failure.missing if failure.missing != "unknown" else None


def explain(text: str) -> Clue:
    """The first clue of a text that has one."""
    return next(iter(find_clues(text, notes=True)), Clue("", "", ""))


def test_catalogue_is_whole_and_names_commands_that_exist() -> None:
    assert [name for name, count in Counter(failure.name for failure in ALL).items() if count > 1] == []
    causes = Counter((failure.cause, failure.level) for failure in ALL)
    assert [cause for cause, count in causes.items() if count > 1] == []
    assert [failure.name for failure in ALL if not failure.source] == []
    wrong = [
        f"{failure.name}: {command}: {problem}"
        for failure in ALL
        for command in re.findall(r"'(kedge [a-z][^']*)'", failure.cause + failure.remedy)
        if (problem := judge_command(command.split()[1:])) is not None
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_failure_is_the_first_that_its_own_message_is_explained_by() -> None:
    wrong = [f"{failure.name} has no example" for failure in ALL if not failure.examples]
    for failure, example in EXAMPLES:
        if not any(mark in example.lower() for mark in MARKS):
            wrong.append(f"{failure.name}: no mark finds {example!r}")
        elif (name := explain(f"epoch 1\n{example}\nbye\n").name) != failure.name:
            wrong.append(f"{failure.name}: {name} explains {example!r}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_failure_is_found_behind_labels_and_colours() -> None:
    wrong = []
    labels = {"0: ": "0", " 3: ": "3", "[1,0]<stderr>:": "0", "[2] ": "2", "[rank1]: ": "1"}
    for failure, (label, rank) in itertools.product(ALL, labels.items()):
        text = "".join(f"{label}\x1b[1m{line}\x1b[0m\n" for line in failure.examples[0].splitlines())
        clue = explain(text)
        if (clue.name, clue.rank) != (failure.name, rank):
            wrong.append(f"{failure.name}: {(clue.name, clue.rank)} explains {text!r}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_what_is_said_of_a_message_quotes_it() -> None:
    """What stands for a group is in the message, or the failure's own word where the message leaves it out."""
    wrong = []
    for failure, example in EXAMPLES:
        clue = explain(example)
        known = " ".join(_ARCHITECTURE.sub(r"\1.\2", example).split())
        for sentence, shown in ((failure.cause, clue.cause), (failure.remedy, clue.remedy)):
            filled = re.fullmatch(re.sub(r"\\\{\d\\\}", "(.+?)", re.escape(sentence)), shown)
            groups = filled.groups() if filled else (shown,)
            strange = [each for each in groups if each not in known and each != _find_own_word(failure)]
            if strange or "{" in shown:
                wrong.append(f"{failure.name}: {strange or shown} of {example!r}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_remedies_name_something_to_type_or_to_do() -> None:
    """A command, an option, a variable, a path; or a part of the sentence that begins with what to do."""
    wrong = [
        f"{failure.name}: {failure.remedy}"
        for failure in ALL
        if failure.name not in NOTHING_TO_DO
        and not TYPED.search(failure.remedy)
        and not {part.split()[0] for part in re.split(r"[,;:] ", failure.remedy)} & TO_DO
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_sentences_go_on_where_others_put_them() -> None:
    """They stand behind a colon: they begin small, unless with a name, and end without a full stop."""
    wrong = []
    for failure in ALL:
        for text in (failure.cause, failure.remedy):
            first = text.split()[0].removesuffix("'s")
            is_large = first[0].isupper() and first[1:].islower()
            if (is_large and first not in NAMES) or re.search(r"[. ]$|\s\s", text):
                wrong.append(f"{failure.name}: {text!r}")
    assert not wrong, "\n" + "\n".join(wrong)
