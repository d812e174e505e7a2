# SPDX-License-Identifier: BSD-3-Clause
"""The documents as tests read them: pages, the blocks in them that run, and every `kedge …` command line they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.requirements import REPOSITORY

RUN = "<!-- run -->"  # on the line above a console block: the block is run, and what it shows must come out
_FENCE = re.compile(r"^(?P<mark><!-- run -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_ENDS = re.compile(r"\s(?:\||&&|\|\||;|>|2>|#)(?:\s|$)|;$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a console block and the lines that are shown below it; `…` stands for anything."""

    command: str
    shown: tuple[str, ...]


def list_pages() -> list[Path]:
    """Every page that people read."""
    return sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def list_running_pages() -> list[Path]:
    """The pages that have blocks to run."""
    return [page for page in list_pages() if f"\n{RUN}\n```console\n" in page.read_text()]


def read_steps(page: Path) -> list[Step]:
    """The commands of all marked blocks of a page, in order: they share a directory and a home."""
    steps: list[Step] = []
    for block in _FENCE.finditer(page.read_text()):
        if block["mark"] and block["kind"] == "console":
            steps += _split_steps(block["text"])
    return steps


_OF_TOOL = re.compile(
    r"^<!-- (?P<what>file|tool): (?P<tool>\S+)(?: (?P<path>\S+))? -->\n```\w+\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def read_tool_steps(page: Path) -> dict[str, list[Step]]:
    """The commands below `<!-- tool: NAME -->`, by the tool that they need."""
    steps: dict[str, list[Step]] = {}
    for block in _OF_TOOL.finditer(page.read_text()):
        if block["what"] == "tool":
            steps.setdefault(block["tool"], []).extend(_split_steps(block["text"]))
    return steps


def read_tool_files(page: Path, tool: str) -> dict[str, str]:
    """The files that a page shows for a tool below `<!-- file: NAME PATH -->`."""
    found = [block for block in _OF_TOOL.finditer(page.read_text()) if (block["what"], block["tool"]) == ("file", tool)]
    return {block["path"]: block["text"] for block in found}


def _split_steps(text: str) -> Iterator[Step]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console block begins with '$ ', not with {parts[0]!r}"
    for part in parts[1:]:
        lines = part.rstrip("\n").split("\n")
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        yield Step("\n".join(lines[:count]), tuple(line for line in lines[count:] if line.strip()))


def list_commands(page: Path) -> Iterator[list[str]]:
    """The words of every `kedge …` on a page, in blocks and in running text, without what is around it."""
    return list_commands_of(page.read_text())


def list_commands_of(text: str) -> Iterator[list[str]]:
    """The same for a part of a page."""
    found = [line for block in _FENCE.finditer(text) for line in block["text"].replace("\\\n", " ").split("\n")]
    found += [re.sub(r"\\(?=\|)", "", span[1]) for span in _SPAN.finditer(_FENCE.sub("", text))]
    for line in found:
        words = _find_kedge(line)
        if words:
            yield words


def _find_kedge(line: str) -> list[str]:
    line = _ENDS.split(line.strip().removeprefix("$ "))[0]
    try:
        words = shlex.split(line)
    except ValueError:  # an apostrophe in prose
        words = line.split()
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in ("time",)):
        words = words[1:]
    if words and words[0] in ("srun", "bsub", "qrsh", "setpriv", "mpirun") and "kedge" in words:
        words = words[words.index("kedge") :]
    return words[1:] if words[:1] == ["kedge"] else []
