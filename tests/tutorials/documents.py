# SPDX-License-Identifier: BSD-3-Clause
"""What a reader of a tutorial types, found in its document: commands, batch scripts and files, each with its line.

Documents are Markdown or reStructuredText. Prompts are taken off and what programs print is left out. A test compares
what is found here with what is run, so that no command is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

PROGRAMS = (
    *("singularity", "apptainer", "docker", "enroot", "srun", "sbatch", "salloc", "squeue", "scancel", "qrsh", "qsub"),
    *("module", "idev", "ibrun", "mpirun", "wget", "curl", "cat", "kedge"),
)
_PROMPT = re.compile(r"(?:\w+@(?P<host>\w+)|\[\w+@(?P<bracketed>\w+) [^]]*])?\$ ?(?=[^\s{(])")
_DIRECTIVE = re.compile(r"(?P<indent>\s*)\.\. (?P<name>code-block|literalinclude|list-table):: ?(?P<value>.*)")
_INLINE = re.compile(r"(?<!`)(?P<ticks>`{1,2})(?!`)(?P<text>.+?)(?P=ticks)(?!`)")
_ALONE = ("nvidia-smi",)  # a whole command, where it stands as one in a sentence


class Kind(Enum):
    """What a reader does with it."""

    COMMAND = "command"  # typed
    SCRIPT = "script"  # saved as a file and submitted
    FILE = "file"  # downloaded: a link, and not the text, is in the document
    NAME = "name"  # the name of an image, which commands take
    OUTPUT = "output"  # shown, not typed


@dataclass(frozen=True, slots=True)
class Found:
    """A part of a document: `text` has neither prompt nor indentation."""

    line: int
    kind: Kind
    text: str
    host: str = ""  # what the prompt says: login, compute, g0001


@dataclass(frozen=True, slots=True)
class _Block:
    """A block as it stands, without indentation: its first line's number, and its language."""

    line: int
    language: str
    lines: tuple[str, ...]


def read_document(text: str) -> list[Found]:
    """Everything that is typed, saved or downloaded, in the order of the document; each block gives at least one."""
    lines = text.splitlines()
    markdown = any(line.lstrip("> ").startswith("```") for line in lines)
    return sorted(_read_markdown(lines) if markdown else _read_rst(lines), key=lambda found: found.line)


def _read_markdown(lines: list[str]) -> Iterator[Found]:
    inside: int | None = None
    language = ""
    for number, line in enumerate(lines, start=1):
        bare = line.removeprefix(">").removeprefix(" ") if line.startswith(">") else line
        if bare.startswith("```") and "```" not in bare[3:]:
            if inside is None:
                inside, language = number + 1, bare[3:].strip()
            else:
                content = (_unquote(each) for each in lines[inside - 1 : number - 1])
                yield from _read_block(_Block(inside, language, tuple(content)))
                inside = None
        elif inside is None:
            yield from _read_sentence(number, line, alone=_ALONE)


def _unquote(line: str) -> str:
    return line.removeprefix(">").removeprefix(" ") if line.startswith(">") else line


def _read_rst(lines: list[str]) -> Iterator[Found]:
    number = 0
    while number < len(lines):
        match = _DIRECTIVE.match(lines[number])
        number += 1
        if match is None:
            yield from _read_sentence(number, lines[number - 1])
            continue
        if match["name"] == "literalinclude":
            yield Found(number, Kind.FILE, match["value"].removeprefix("assets/"))
            continue
        first, number = number, _find_end(lines, number, match["indent"])
        block = _cut_block(first + 1, match["value"], lines[first:number])
        yield from _read_table(block) if match["name"] == "list-table" else _read_block(block)


def _find_end(lines: list[str], start: int, indent: str) -> int:
    """Where the lines end that are indented below a directive."""
    for number in range(start, len(lines)):
        line = lines[number]
        if line.strip() and not (line.startswith(indent) and line[len(indent) :][:1].isspace()):
            return number
    return len(lines)


def _cut_block(line: int, language: str, lines: list[str]) -> _Block:
    """The body of a directive, without its options and empty lines around it, moved to the left."""
    while lines and (not lines[0].strip() or lines[0].strip().startswith(":")):
        line, lines = line + 1, lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    indents = [re.match(r"\s*", each)[0] for each in lines if each.strip()]  # type: ignore[index]
    width = min(map(len, indents), default=0)
    return _Block(line, language.strip(), tuple(each[width:] for each in lines))


def _read_block(block: _Block) -> Iterator[Found]:
    if any(_PROMPT.match(line) for line in block.lines):
        yield from _read_session(block)
    elif block.lines[:1] and block.lines[0].startswith("#!"):
        yield Found(block.line, Kind.SCRIPT, "\n".join(block.lines) + "\n")
    elif block.lines[:1] and block.lines[0].startswith(">"):
        yield Found(block.line, Kind.OUTPUT, block.lines[0])
    elif block.language in ("shell", "bash", "console") or block.lines[0].split()[0] in PROGRAMS:
        yield from _read_commands(block)
    else:
        yield Found(block.line, Kind.NAME, block.lines[0])


def _read_session(block: _Block) -> Iterator[Found]:
    """Lines with a prompt are typed; the others are comments of the author, or printed."""
    for number, line in enumerate(block.lines, start=block.line):
        match = _PROMPT.match(line)
        if match:
            host = match["host"] or match["bracketed"] or ""
            yield Found(number, Kind.COMMAND, line[match.end() :].strip(), host)


def _read_commands(block: _Block) -> Iterator[Found]:
    """Each line is typed, together with those that continue it; comments are not."""
    begun: Found | None = None
    for number, line in enumerate(block.lines, start=block.line):
        if begun is None and (not line.strip() or line.startswith("#")):
            continue
        part = line.removesuffix("\\").strip()
        begun = replace(begun, text=f"{begun.text} {part}") if begun else Found(number, Kind.COMMAND, part)
        if not line.endswith("\\"):
            yield begun
            begun = None


def _read_table(block: _Block) -> Iterator[Found]:
    """A table whose first row and first column are text, and whose other cells are typed."""
    row = column = 0
    for number, line in enumerate(block.lines, start=block.line):
        match = re.match(r"(?P<row>\* )?\s*- ?(?P<cell>.*)", line)
        if match is None:
            continue
        row, column = (row + 1, 1) if match["row"] else (row, column + 1)
        if row > 1 and column > 1 and match["cell"]:
            yield Found(number, Kind.COMMAND, match["cell"], "compute" if column == 2 else "login")


def _read_sentence(number: int, line: str, alone: tuple[str, ...] = ()) -> Iterator[Found]:
    """Commands in a sentence: after a prompt, or a program's name with what it needs."""
    for match in _INLINE.finditer(line):
        text = match["text"]
        prompt = _PROMPT.match(text)
        words = text.split()
        is_whole = words[0] in PROGRAMS and (len(words) > 2 or "/" in words[-1]) and "<http" not in text
        is_variable = prompt and text[prompt.end()].isupper()
        if (prompt and not is_variable) or is_whole or text in alone:
            yield Found(number, Kind.COMMAND, text[prompt.end() :] if prompt else text)
