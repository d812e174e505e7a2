# SPDX-License-Identifier: BSD-3-Clause
"""Words of other tools are answered with kedge's, and every command in an answer exists. Needs nothing."""

from __future__ import annotations

import re

import pytest

from kedge.cli.entry import main
from kedge.cli.main import make_parser
from kedge.cli.verbs import VERBS
from kedge.errors import UsageError
from kedge.model.words_of_other_tools import CONTAINER_HABITS, OPTION_HABITS, VERB_HABITS
from kedge.runtime.flags import find_flag, parse_words
from tests.architecture.test_documents import judge_command

HINTS = {*VERB_HABITS.values(), *CONTAINER_HABITS.values()}
HINTS |= {hint for hints in OPTION_HABITS.values() for hint in hints.values()}


@pytest.mark.parametrize("verb", sorted(VERB_HABITS))
def test_habits_verbs_are_answered(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verb not in VERBS
    assert main([verb, "x"]) == UsageError.exit_code
    assert capsys.readouterr().err == f"kedge: kedge has no verb '{verb}'\nhint: {VERB_HABITS[verb]}\n"


@pytest.mark.parametrize("verb", ["clear", "lunch-break", "psql", "foo"])
def test_habits_verbs_that_nobody_knows_get_no_proposal(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == UsageError.exit_code
    assert capsys.readouterr().err.endswith("hint: to list the verbs: kedge --help\n")


@pytest.mark.parametrize("option", sorted(CONTAINER_HABITS))
def test_habits_options_of_containers_are_answered(option: str) -> None:
    assert find_flag("exec", option.lstrip("-")) is None
    with pytest.raises(UsageError) as caught:
        parse_words("exec", [option, "image", "true"], {})
    assert (caught.value.message, caught.value.hint) == (
        f"'kedge exec' has no option {option}",
        CONTAINER_HABITS[option],
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["-v", "/data:/data", "i", "ls"], "to bind a directory: -B /data:/data"),
        (["-e", "A=1", "i", "ls"], "to set a variable: --env A=1"),
        (["-p", "8080:80", "i", "ls"], "leave it out: containers use the host's network"),
        (["--gpus=all", "i", "ls"], CONTAINER_HABITS["--gpus"]),
        (["--rm", "-it", "i", "ls"], CONTAINER_HABITS["--rm"]),
    ],
)
def test_habits_letters_that_mean_something_else_are_explained(words: list[str], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_words("exec", words, {})
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("verb", "option"), [(verb, option) for verb in OPTION_HABITS for option in OPTION_HABITS[verb]]
)
def test_habits_options_of_other_verbs_are_answered(verb: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert option not in make_parser(verb)._option_string_actions
    words = {"pull": ["docker://ubuntu"], "push": ["a.sif", "docker://x/y"]}.get(verb, [])
    assert main([verb, f"{option}=x", *words]) == UsageError.exit_code
    assert capsys.readouterr().err.endswith(f"hint: {OPTION_HABITS[verb][option]}\n")


def test_habits_name_commands_that_exist() -> None:
    commands = [found for hint in HINTS for found in re.findall(r": kedge ([^;]+)", hint)]
    assert len(commands) > 50
    wrong = [f"kedge {command}" for command in commands if judge_command(command.split()) is not None]
    assert not wrong
