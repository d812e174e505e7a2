# SPDX-License-Identifier: BSD-3-Clause
"""The syntax of a Dockerfile: one node for each instruction, with its flags, words, heredocs and lines.

Nothing is known here about what an instruction means. `dump_syntax` prints the nodes as BuildKit's parser does.
"""

from __future__ import annotations

import re
from typing import Any

from kedge.base.frozen import frozen, replace
from kedge.builds.dockerfile.expand import ExpansionError, ExpansionRules, expand
from kedge.builds.dockerfile.lines import JoinedLine, LineReader
from kedge.builds.dockerfile.words import WordsError, read_arguments, split_instruction
from kedge.builds.step_values import RecipePlace, refuse_recipe

_HEREDOC = re.compile(r"([0-9]*)<<(-?)[\t\n\f\r ]*([^<]*)")
_WITH_HEREDOCS = ("add", "copy", "run")
_IN_LINE = ExpansionRules(keeps_quotes=True, keeps_escapes=True, keeps_unset=True)
_NAME = ExpansionRules(keeps_unset=True)
_QUOTED_NAME = ExpansionRules(keeps_quotes=True, keeps_unset=True)
_DEEPEST = 20  # ONBUILD in ONBUILD; one is allowed later


@frozen
class Heredoc:
    """A document in the file: `<<EOF` and the lines up to `EOF`."""

    name: str
    content: str = ""
    expands: bool = True  # False where its name is quoted
    strips_tabs: bool = False  # <<-
    descriptor: int = 0

    @property
    def stripped(self) -> str:
        """Return the heredoc's content, without the tabs at the beginning of lines if it is a `<<-`."""
        return re.sub(r"(?m)^\t+", "", self.content) if self.strips_tabs else self.content


@frozen
class DockerfileNode:
    """An instruction as it is written."""

    name: str
    flags: tuple[str, ...]
    words: tuple[str, ...]  # ENV and LABEL have three for each pair: name, value, and "=" or nothing
    is_json: bool
    line: JoinedLine
    text: str  # the instruction on one line
    file: str = ""
    end: int = 0  # the last line, of heredocs too
    heredocs: tuple[Heredoc, ...] = ()
    inner: DockerfileNode | None = None  # what ONBUILD holds

    @property
    def keyword(self) -> str:
        """The name in capitals."""
        return self.name.upper()

    @property
    def place(self) -> RecipePlace:
        """Return where the instruction begins."""
        return RecipePlace(self.file, *self.line.locate(0))

    def find(self, part: str) -> RecipePlace:
        """Where a part of it stands; its beginning if the part cannot be found as it is."""
        offset = self.line.text.find(part) if part else -1
        return RecipePlace(self.file, *self.line.locate(max(offset, 0)))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "name": self.name,
            "flags": list(self.flags),
            "words": list(self.words),
            "json": self.is_json,
            "text": self.text,
            "start": self.line.start,
            "end": self.end,
            "column": self.place.column,
            "heredocs": [
                {
                    "name": heredoc.name,
                    "content": heredoc.content,
                    "expand": heredoc.expands,
                    "chomp": heredoc.strips_tabs,
                    "descriptor": heredoc.descriptor,
                }
                for heredoc in self.heredocs
            ],
            "inner": self.inner.as_dict() if self.inner else None,
        }


@frozen
class DockerfileSyntax:
    """A whole file."""

    file: str
    nodes: tuple[DockerfileNode, ...]
    directives: dict[str, str]
    escape: str = "\\"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "escape": self.escape,
            "directives": self.directives,
            "instructions": [node.as_dict() for node in self.nodes],
        }


_MOST_INSTRUCTIONS = 20_000  # each is an entry in the history of the image


def read_syntax(text: str, file: str = "Dockerfile") -> DockerfileSyntax:
    """The nodes of a Dockerfile; raises InvalidRecipe with the place."""
    reader = LineReader(text, file)
    nodes = tuple(_take_heredocs(_read_node(line, line.text, reader), reader) for line in reader.join())
    if len(nodes) > _MOST_INSTRUCTIONS:
        place = RecipePlace(file, nodes[_MOST_INSTRUCTIONS].line.locate(0)[0])
        message = f"the file has {len(nodes):,} instructions; kedge builds at most {_MOST_INSTRUCTIONS:,}"
        raise refuse_recipe(place, message, "put what they do into a script, and COPY it")
    if not nodes:
        place = RecipePlace(file, max(reader.number, 1))
        raise refuse_recipe(place, "no instruction in this file", "a Dockerfile begins with FROM and the base image")
    return DockerfileSyntax(file, nodes, reader.directives, reader.escape)


def _read_node(line: JoinedLine, text: str, reader: LineReader, depth: int = 0) -> DockerfileNode:
    name, flags, rest = split_instruction(text, reader.escape)
    inner, is_json = None, False
    words: tuple[str, ...] = ()
    try:
        if name.lower() == "onbuild":
            inner = _read_inner(line, rest, reader, depth)
        else:
            words, is_json = read_arguments(name.lower(), rest, reader.escape)
    except WordsError as error:
        place = RecipePlace(reader.name, *line.locate(0))
        raise refuse_recipe(place, f"{name.upper()}: {error}", _HINTS.get(name.upper())) from None
    return DockerfileNode(
        name=name,
        flags=flags,
        words=words,
        is_json=is_json,
        line=line,
        text=text,
        file=reader.name,
        end=line.end,
        inner=inner,
    )


_PAIRS = "write {0} NAME=VALUE; quote a value with blanks"
_STRINGS = 'quote every item, as in ["a", "1"]'
_HINTS = {name: _PAIRS.format(name) for name in ("ENV", "LABEL")} | dict.fromkeys(
    ("ADD", "COPY", "CMD", "ENTRYPOINT", "RUN", "SHELL", "VOLUME", "HEALTHCHECK"), _STRINGS
)


def _read_inner(line: JoinedLine, rest: str, reader: LineReader, depth: int) -> DockerfileNode | None:
    if depth > _DEEPEST:
        raise WordsError("it is nested too deeply")
    return _read_node(line, rest, reader, depth + 1) if rest else None


def _take_heredocs(node: DockerfileNode, reader: LineReader) -> DockerfileNode:
    """The node with the documents that follow its line."""
    content = node.inner or node
    if "<<" not in node.text or content.name.lower() not in _WITH_HEREDOCS or content.is_json:
        return node
    heredocs = tuple(_take_content(heredoc, node, reader) for heredoc in _find_heredocs(node.text))
    return replace(node, heredocs=heredocs, end=reader.number)


def _take_content(heredoc: Heredoc, node: DockerfileNode, reader: LineReader) -> Heredoc:
    lines: list[str] = []
    while (raw := reader.take()) is not None:
        line = raw.rstrip("\r\n")
        if (line.lstrip("\t") if heredoc.strips_tabs else line) == heredoc.name:
            return replace(heredoc, content="".join(lines))
        lines.append(raw)
    message = f"the heredoc '{heredoc.name}' has no end"
    raise refuse_recipe(node.find("<<"), message, f"add a line with nothing but: {heredoc.name}")


def _find_heredocs(text: str) -> list[Heredoc]:
    """The heredocs that a line opens; a line whose quotes do not match opens none."""
    try:
        words = expand(text, {}, _IN_LINE).words
    except ExpansionError:
        return []
    heredocs = (parse_heredoc(word) for word in words if "<<" in word)
    return [heredoc for heredoc in heredocs if heredoc]


def parse_heredoc(word: str) -> Heredoc | None:
    """`<<EOF`, `3<<-EOF`, `<<"EOF"`, if the word is nothing else."""
    match = _HEREDOC.fullmatch(word)
    if not match or not match[3]:
        return None
    try:
        names, quoted = expand(match[3], {}, _NAME).words, expand(match[3], {}, _QUOTED_NAME).words
    except ExpansionError:
        return None
    if len(names) != 1 or len(quoted) != 1:
        return None
    expands = _count_quotes(names[0]) == _count_quotes(quoted[0])
    descriptor = int(match[1] or 0) if len(match[1]) < 10 else 0
    return Heredoc(names[0], expands=expands, strips_tabs=match[2] == "-", descriptor=descriptor)


def _count_quotes(word: str) -> int:
    return word.count("'") + word.count('"')
