# SPDX-License-Identifier: BSD-3-Clause
"""docs/tutorials-compared.md: its figures are those of its lists and of both texts, and kedge's are no higher."""

from __future__ import annotations

import re

from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_shared
from tests.tutorials import test_abci, test_nvidia, test_sdumont, test_tacc, test_zih
from tests.tutorials.documents import Kind, read_document
from tests.tutorials.lessons import Lesson, Step
from tests.tutorials.reader import list_steps

PAGE = (REPOSITORY / "docs/tutorials-compared.md").read_text(encoding="utf-8")
LESSONS = {
    "ZIH Dresden": (test_zih.LESSON, "zih"),
    "LNCC SDumont": (test_sdumont.LESSON, "sdumont"),
    "AIST ABCI": (test_abci.LESSON, "abci"),
    "NVIDIA": (test_nvidia.LESSON, "nvidia-slurm"),
    "TACC": (test_tacc.LESSON, "tacc"),
}
_LOOKS = ("ls", "pwd", "whoami", "cat", "find", "touch", "echo")
_OTHER_TABS = ("docker", "Dockerfile", "enroot")
_CODE = re.compile(r"`([^`]+)`")


def is_typed(step: Step) -> bool:
    """Whether a reader of the Apptainer tab types it to do something."""
    is_of_other_tab = step.found.kind is Kind.FILE and any(word in step.found.text for word in _OTHER_TABS)
    return step.is_typed and not is_of_other_tab and step.text.split()[0] not in _LOOKS


def count_theirs(lesson: Lesson) -> tuple[int, int]:
    steps = list_steps(lesson)
    scripts = [step.text for step in steps if step.found.kind is Kind.SCRIPT]
    lines = [line for text in scripts for line in text.splitlines() if line.strip()]
    return len([step for step in steps if is_typed(step)]), len(lines)


def count_ours(page: str) -> tuple[int, int]:
    """Of the page as far as it does the tutorial's work, with bringing kedge there."""
    text = (REPOSITORY / f"docs/sites/{page}.md").read_text(encoding="utf-8").partition("\n## Beyond the tutorial\n")[0]
    assert "$ kedge bundle\n" in text
    files = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    commands = [
        each for each in read_document(text) if each.kind is Kind.COMMAND and each.text.split()[0] not in _LOOKS
    ]
    return len(commands), sum(bool(line.strip()) for file in files for line in file.splitlines())


def read_tables(title: str) -> tuple[list[list[str]], list[list[str]]]:
    """What a reader must know, and what fails silently: the two tables of a section, without their heads."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    know, silent = (part.splitlines()[2:] for part in section.strip().split("\n\n"))
    return [split_row(row) for row in know], [split_row(row) for row in silent]


def split_row(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def read_summary(title: str) -> list[tuple[int, int]]:
    [row] = re.findall(rf"^\| {title} \|.*$", PAGE, re.MULTILINE)
    return [(int(theirs), int(ours)) for theirs, ours in re.findall(r"(\d+) → (\d+)", row)]


@each_row("title", LESSONS)
def test_compared_figures_are_those_of_texts_and_lists(title: str) -> None:
    lesson, page = LESSONS[title]
    know, silent = read_tables(title)
    theirs, ours = count_theirs(lesson), count_ours(page)
    counted = [
        (theirs[0], ours[0]),
        (theirs[1], ours[1]),
        (len([row for row in know if row[0] != "–"]), len([row for row in know if row[2].startswith("the same")])),
        (len(silent), len([row for row in silent if row[3].startswith("silent, too")])),
    ]
    assert read_summary(title) == counted


@each_row("title", LESSONS)
def test_compared_kedge_needs_less(title: str) -> None:
    commands, lines, know, silent = read_summary(title)
    assert commands[0] >= commands[1]
    assert lines[1] == 0 or title == "ZIH Dresden"  # whose readers type one long line three times
    assert know[0] > know[1]
    assert silent[0] > silent[1]


@each_row("title", LESSONS)
def test_compared_quotations_stand_in_their_lines(title: str) -> None:
    [path] = require_shared("tutorials").glob(f"{LESSONS[title][0].document}_*")
    lines = path.read_text(encoding="utf-8").splitlines()
    for row in (row for table in read_tables(title) for row in table if row[0] != "–"):
        quoted = _CODE.findall(row[1])
        assert quoted, row
        assert quoted[0] in lines[int(row[0]) - 1], row


@each_row("title", LESSONS)
def test_compared_each_defence_is_shown_by_something(title: str) -> None:
    for row in read_tables(title)[1]:
        assert (REPOSITORY / row[4].strip("`")).exists(), row
