# SPDX-License-Identifier: BSD-3-Clause
"""What the documents name exists: commands, options, variables, files, tests, error texts. Needs nothing."""

from __future__ import annotations

import argparse
import ast
import functools
import re
from pathlib import Path

import pytest

from kedge.base.reference import Reference
from kedge.cli.entry import CONTAINER_VERBS
from kedge.cli.main import make_parser
from kedge.cli.verbs import VERBS
from kedge.container.flags import parse_words
from kedge.errors import UsageError
from kedge.system.settings import PREFIXES, SETTINGS
from tests.architecture.source_tree import read_modules
from tests.builders.documents import list_commands, list_pages
from tests.builders.made_pages import make_pages
from tests.requirements import REPOSITORY

PAGES = [str(page.relative_to(REPOSITORY)) for page in list_pages()]
TOP_OPTIONS = {"--help", "-h", "--version", "-V", "--dry-run"}
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+\Z|…|\.\.\.")


def find_subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices  # type: ignore[return-value]
    return {}


@functools.cache
def parser_of(verb: str) -> argparse.ArgumentParser:
    """One for all pages: making it takes longer than asking it."""
    return make_parser(verb)


def judge_command(words: list[str]) -> str | None:
    """What is wrong with a command line of a page; None when verb, subcommand and options exist."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        rest.pop(0)  # global ones; the verb's parser knows them too, and is asked below
    if not rest or PLACEHOLDER.match(rest[0]) or rest[0] == "help":
        return None
    verb = rest.pop(0)
    if verb not in VERBS:
        return f"there is no verb '{verb}'"
    if verb in CONTAINER_VERBS:
        return judge_container(verb, rest)
    parser = parser_of(verb)
    commands = find_subparsers(parser)
    if commands:
        named = [word for word in rest if not word.startswith("-")]
        if not named or PLACEHOLDER.match(named[0]):
            return None
        if named[0] not in commands:
            return f"'kedge {verb}' has no '{named[0]}'"
        parser = commands[named[0]]
    known = set(parser._option_string_actions) | TOP_OPTIONS
    options = [word.split("=")[0] for word in drop_program(parser, words) if re.match(r"--?[A-Za-z]", word)]
    wrong = [option for option in options if option not in known]
    return f"'kedge {verb}' has no {', '.join(wrong)}" if wrong else None


def drop_program(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """The words without those of a program, for verbs that hand them on: `submit` and `alloc`."""
    if not any(action.nargs == argparse.REMAINDER for action in parser._actions):
        return words
    kept, rest = words[:1], words[1:]
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        action = parser._option_string_actions.get(rest[0])
        count = 2 if action is not None and action.nargs != 0 else 1
        kept, rest = [*kept, *rest[:count]], rest[count:]
    return kept


def judge_container(verb: str, words: list[str]) -> str | None:
    """The same for the verbs whose words behind the image are the program's; a page may leave out image and program."""
    try:
        parse_words(verb, [*words, "image", "program"], {})
    except UsageError as problem:
        return problem.message
    return None


@pytest.mark.parametrize("page", PAGES)
def test_documents_commands_exist(page: str) -> None:
    wrong = list_wrong_commands(REPOSITORY / page)
    assert not wrong, f"{page}:\n" + "\n".join(wrong)


def list_wrong_commands(page: Path) -> list[str]:
    judged = {f"kedge {' '.join(words)}": judge_command(words) for words in list_commands(page)}
    return [f"{command}: {problem}" for command, problem in judged.items() if problem]


def test_made_pages_name_commands_that_exist_and_have_whole_tables() -> None:
    pages = sorted(make_pages().rglob("*.md"))
    assert [problem for page in pages for problem in (*list_wrong_commands(page), *list_odd_rows(page))] == []
    assert sum(1 for page in pages for _ in list_commands(page)) > 200


def test_documents_commands_are_found_and_judged() -> None:
    found = sum(1 for page in PAGES for _ in list_commands(REPOSITORY / page))
    assert found > 100
    assert judge_command(["pull", "--sandbox", "x", "docker://y"]) is None
    assert judge_command(["pull", "--sanbox", "x"]) == "'kedge pull' has no --sanbox"
    assert judge_command(["cache", "wash"]) == "'kedge cache' has no 'wash'"
    assert judge_command(["exec", "--nv", "x.sif", "apt-get", "-y", "install"]) is None
    assert judge_command(["submit", "--gpus", "2", "x.sif", "python", "--epochs", "3"]) is None
    assert judge_command(["submit", "--gpu-count", "2", "x.sif"]) == "'kedge submit' has no --gpu-count"
    assert "--nvidia" in str(judge_command(["exec", "--nvidia", "x.sif", "ls"]))
    assert judge_command(["fly", "x"]) == "there is no verb 'fly'"


def test_documents_references_can_be_read() -> None:
    shown = [words for page in PAGES for words in list_commands(REPOSITORY / page) if words[:1] == ["pull"]]
    plain = [words[-1] for words in shown if not re.search(r"…|\.\.\.|[A-Z]{3}", words[-1])]
    assert len(plain) > 20
    for text in plain:
        Reference.parse(text)


def read_source() -> str:
    return "\n".join(module.text for module in read_modules().values())


def test_documents_variables_exist() -> None:
    named = set(re.findall(r"\bKEDGE_[A-Z_]*[A-Z]\b", "\n".join((REPOSITORY / page).read_text() for page in PAGES)))
    known = {f"KEDGE_{name}" for setting in SETTINGS.values() for name in setting.variables}
    assert PREFIXES[0] == "KEDGE_"
    source = read_source()
    tests = {"KEDGE_SHARED", "KEDGE_PEERS"}
    suffixes = {name for name in named - known - tests if f'"{name}"' not in source}
    unknown = {name for name in suffixes if f'"{name.removeprefix("KEDGE_")}"' not in source}
    assert not unknown


def test_documents_files_exist() -> None:
    wrong = []
    for page in PAGES:
        named = re.findall(r"`((?:src|tests|docs|scripts|bench)/[\w./-]*[\w/])`", (REPOSITORY / page).read_text())
        wrong += [f"{page} names {name}" for name in named if not (REPOSITORY / name).exists()]
    assert not wrong, "\n".join(wrong)


def list_source_texts() -> list[str]:
    """Every piece of text in the code, the fixed parts of f-strings one by one."""
    found = [node.value for module in read_modules().values() for node in module.find(ast.Constant)]
    return [value for value in found if isinstance(value, str)]


def test_documents_error_texts_are_those_of_the_code() -> None:
    page = Path(REPOSITORY / "docs/guides/troubleshooting.md").read_text()
    shown = re.findall(r"^### `(.+)`$", page, re.MULTILINE)
    assert len(shown) >= 15
    texts = list_source_texts()
    wrong = []
    for text in shown:
        parts = [part.strip() for part in text.split("…")]
        wrong += [f"'{part}' of: {text}" for part in parts if not any(part in each for each in texts)]
    assert not wrong, "no error says this:\n" + "\n".join(wrong)


def test_documents_pages_are_linked_from_the_index() -> None:
    index = (REPOSITORY / "docs/index.md").read_text()
    pages = [
        f"{room}/{path.name}"
        for room in ("guides", "tasks", "sites")
        for path in (REPOSITORY / "docs" / room).glob("*.md")
    ]
    assert not [page for page in pages if f"({page})" not in index]
    assert "(docs/index.md)" in (REPOSITORY / "README.md").read_text()


def test_documents_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 115


@pytest.mark.parametrize("page", PAGES)
def test_rows_of_a_table_have_as_many_cells_as_its_head(page: str) -> None:
    assert list_odd_rows(REPOSITORY / page) == []


def list_odd_rows(page: Path) -> list[str]:
    """A bar inside a cell ends it unless it is escaped, and the rest of the row is lost."""
    width, wrong = 0, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line)) - 1
        width = width or cells
        if cells != width:
            wrong.append(f"{page.name}:{number}: {cells} cells, the head has {width}")
    return wrong
