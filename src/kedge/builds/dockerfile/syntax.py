# SPDX-License-Identifier: BSD-3-Clause
"""The syntax of a Dockerfile: one node for each instruction, with its flags, words, heredocs and lines.

Nothing is known here about what an instruction means. `dump_syntax` prints the nodes as BuildKit's parser does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kedge.base.frozen import frozen, replace
from kedge.builds.dockerfile.expand import ExpansionError, ExpansionRules, expand
from kedge.builds.dockerfile.words import WordsError, read_arguments, split_instruction
from kedge.builds.go_strings import SPACES
from kedge.builds.step_values import RecipePlace, refuse_recipe

# The lines of a Dockerfile put together: continuations joined, comments dropped, directives at the top obeyed.
#
# Only the escape directive changes how a file is read. An unknown directive, an empty line or anything else ends them.

LONGEST_LINE = 65536  # bytes with its end; BuildKit reads no longer ones
_DIRECTIVE = re.compile(r"([a-zA-Z][a-zA-Z0-9]*)[\t\n\f\r ]*=[\t\n\f\r ]*(.+?)[\t\n\f\r ]*", re.DOTALL)
_DIRECTIVES = ("syntax", "escape", "check")
_CONTINUED = {
    "\\": re.compile(r"(?:(?<=[^\\])|^)\\[ \t]*\Z"),
    "`": re.compile(r"(?:(?<=[^`])|^)`[ \t]*\Z"),
}


@frozen
class JoinedLine:
    """An instruction on one line, and where its pieces stand in the file."""

    text: str
    start: int
    end: int
    pieces: tuple[tuple[int, int, int], ...]  # offset in the text, line, column
    comments: tuple[str, ...] = ()
    has_gap: bool = False  # an empty line among those that continue it

    def locate(self, offset: int) -> tuple[int, int]:
        """Line and column of a character of the text."""
        place = self.pieces[0]
        for piece in self.pieces:
            if piece[0] > offset:
                break
            place = piece
        return place[1], place[2] + offset - place[0]


@dataclass(slots=True)
class LineReader:
    """Reads a file from the top; whoever finds a heredoc takes its lines from the same reader."""

    text: str
    name: str
    escape: str = "\\"
    directives: dict[str, str] = field(default_factory=dict)
    number: int = 0  # of the line read last
    _lines: list[str] = field(default_factory=list)
    _takes_directives: bool = True

    def __post_init__(self) -> None:
        lines = self.text.removeprefix("\ufeff").split("\n")
        self._lines = [f"{line}\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]

    def take(self) -> str | None:
        """The next line of the file with its end, or None."""
        if self.number >= len(self._lines):
            return None
        line = self._lines[self.number]
        self.number += 1
        self._check_length(line)
        return line

    def join(self) -> Iterator[JoinedLine]:
        """The instructions of the file, in their order."""
        comments: list[str] = []
        while (raw := self.take()) is not None:
            self._note_comment(raw, comments)
            first = raw.rstrip("\r\n").lstrip(SPACES)
            if self._read_directive(first):
                comments.pop()
            if not first or first[0] == "#":
                continue
            column = len(raw) - len(raw.lstrip(SPACES)) + 1
            yield self._finish(first, column, tuple(comments))
            comments = []

    def _finish(self, first: str, column: int, comments: tuple[str, ...]) -> JoinedLine:
        """The line with all that continues it."""
        start, has_gap = self.number, False
        text, is_whole = self._cut_continuation(first)
        parts, pieces, length = [text], [(0, start, column)], len(text)
        while not is_whole and (raw := self.take()) is not None:
            if raw.lstrip(SPACES).startswith("#"):
                continue
            line = raw.rstrip("\r\n")
            if not line.lstrip(SPACES):
                has_gap = True
                continue
            text, is_whole = self._cut_continuation(line)
            parts.append(text)
            pieces.append((length, self.number, 1))
            length += len(text)
        return JoinedLine(
            text="".join(parts), start=start, end=self.number, pieces=tuple(pieces), comments=comments, has_gap=has_gap
        )

    def _cut_continuation(self, line: str) -> tuple[str, bool]:
        """The line without the escape character that continues it, and whether there is none."""
        if not line.rstrip(" \t").endswith(self.escape):
            return line, True
        match = _CONTINUED[self.escape].search(line)
        return (line[: match.start()], False) if match else (line, True)

    def _note_comment(self, raw: str, comments: list[str]) -> None:
        if not raw.lstrip(SPACES).startswith("#"):
            return
        comment = raw[1:].strip(SPACES)
        if comment:
            comments.append(comment)
        else:
            comments.clear()

    def _read_directive(self, line: str) -> bool:
        """Whether the line is a directive of the parser; its value is noted."""
        if not self._takes_directives:
            return False
        match = _DIRECTIVE.fullmatch(line[1:].lstrip(SPACES)) if line.startswith("#") else None
        name = match[1].lower() if match else ""
        if match is None or name not in _DIRECTIVES:
            self._takes_directives = False
            return False
        place = RecipePlace(self.name, self.number)
        if name in self.directives:
            raise refuse_recipe(place, f"a second '{name}' directive", "a Dockerfile takes one of each: remove it")
        self.directives[name] = match[2]
        if name == "escape":
            self._set_escape(match[2], place)
        return True

    def _set_escape(self, value: str, place: RecipePlace) -> None:
        if value not in _CONTINUED:
            raise refuse_recipe(place, f"'{value}' is not an escape character", "use \\ or `, as in: # escape=`")
        self.escape = value

    def _check_length(self, line: str) -> None:
        if len(line) * 4 < LONGEST_LINE:
            return
        size = len(line.encode("utf-8", "surrogatepass"))
        if size > LONGEST_LINE or (size == LONGEST_LINE and not line.endswith("\n")):
            raise refuse_recipe(
                RecipePlace(self.name, self.number),
                f"the line has {size} bytes; a line of a Dockerfile has at most {LONGEST_LINE - 1}",
                "break it with a backslash, or COPY its content from a file",
            )


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


# The syntax of a Dockerfile in the notation of BuildKit's parser, to compare the two: `(run "echo hello")`.

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {"\\": "\\\\", '"': '\\"'}


def dump_syntax(syntax: DockerfileSyntax) -> str:
    """Return one line for each instruction."""
    return "\n".join(f"({_dump_node(node)})" for node in syntax.nodes)


def _dump_node(node: DockerfileNode) -> str:
    parts = [node.name.lower()]
    if node.flags:
        parts.append("[" + " ".join(_quote(_as_bytes(flag)) for flag in node.flags) + "]")
    if node.inner:
        parts.append(f"({_dump_node(node.inner)})")
    parts += [_quote(word) for word in node.words]
    return " ".join(parts).strip(SPACES)


def _as_bytes(flag: str) -> str:
    """BuildKit reads flags byte by byte, so what is not ASCII looks odd there."""
    return flag.encode("utf-8", "surrogateescape").decode("latin-1")


def _quote(text: str) -> str:
    """The text as Go quotes it."""
    return '"' + "".join(_ESCAPES.get(character) or _quote_character(character) for character in text) + '"'


def _quote_character(character: str) -> str:
    code = ord(character)
    if character.isprintable():
        return character
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
