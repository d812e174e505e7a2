# SPDX-License-Identifier: BSD-3-Clause
"""Words of other tools are answered with kedge's, and every command in an answer exists. Needs nothing."""

from __future__ import annotations

import re

import pytest

from kedge.base.words_of_other_tools import CONTAINER_HABITS, OPTION_HABITS, VERB_HABITS
from kedge.cli.entry import main
from kedge.cli.main import make_parser
from kedge.cli.verbs import VERBS
from kedge.container.flags import find_flag, parse_words
from kedge.errors import UsageError
from tests.architecture.test_documents import judge_command
from tests.builders.rows import each_row
from tests.wording import assert_ends

HINTS = {*VERB_HABITS.values(), *CONTAINER_HABITS.values()}
HINTS |= {hint for hints in OPTION_HABITS.values() for hint in hints.values()}


def test_habits_verbs_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert not VERB_HABITS.keys() & VERBS.keys()
    said = {verb: (main([verb, "x"]), capsys.readouterr().err) for verb in VERB_HABITS}
    assert said == {
        verb: (UsageError.exit_code, f"kedge: kedge has no verb '{verb}'\nhint: {hint}\n")
        for verb, hint in VERB_HABITS.items()
    }


@each_row("verb", ["clear", "lunch-break", "psql", "foo"])
def test_habits_verbs_that_nobody_knows_get_no_proposal(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == UsageError.exit_code
    assert_ends(capsys.readouterr().err, "cli/list-verbs-help")


def test_habits_options_of_containers_are_answered() -> None:
    said = {}
    for option in CONTAINER_HABITS:
        assert find_flag("exec", option.lstrip("-")) is None, option
        with pytest.raises(UsageError) as caught:
            pytest.fail(f"{option} is taken: {parse_words('exec', [option, 'image', 'true'], {})}")
        said[option] = (caught.value.message, caught.value.hint)
    assert said == {option: (f"'kedge exec' has no option {option}", hint) for option, hint in CONTAINER_HABITS.items()}


@each_row(
    "words, hint",
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


def test_habits_options_of_other_verbs_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for verb, hints in OPTION_HABITS.items():
        known = make_parser(verb)._option_string_actions
        words = {"pull": ["docker://ubuntu"], "push": ["a.sif", "docker://x/y"]}.get(verb, [])
        for option, hint in hints.items():
            status, said = main([verb, f"{option}=x", *words]), capsys.readouterr().err
            if option in known or status != UsageError.exit_code or not said.endswith(f"hint: {hint}\n"):
                wrong.append(f"kedge {verb} {option}: {status} {said}")
    assert not wrong, "\n".join(wrong)


def test_habits_name_commands_that_exist() -> None:
    commands = [found for hint in HINTS for found in re.findall(r": kedge ([^;]+)", hint)]
    assert len(commands) > 50
    wrong = [f"kedge {command}" for command in commands if judge_command(command.split()) is not None]
    assert not wrong
