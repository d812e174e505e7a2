# SPDX-License-Identifier: BSD-3-Clause
"""The one reader of shell scripts that nobody runs: finds their commands and words; any text gives some answer.

It expands nothing. A word keeps its source and, where nothing in it would be expanded, what it stands for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_KEYWORDS = "if then else elif fi for while until do done case esac select function in { } ! [[ ]] time coproc"
KEYWORDS = frozenset(_KEYWORDS.split())
_OPERATOR = re.compile(r"&&|\|\||;;|\|&|[;&|()\n]")
_REDIRECT = re.compile(r"(?:<<-|<<<|<<|<>|>>|>\||>&|<&|&>>|&>|<|>)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


@dataclass(frozen=True, slots=True)
class Word:
    """One word: `raw` as it is written, `text` without its quotes; only a literal one means what `text` says."""

    raw: str
    text: str
    is_literal: bool

    @property
    def is_assignment(self) -> bool:
        """Whether it looks like NAME=value."""
        return _ASSIGNMENT.match(self.raw) is not None


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words without redirections, and what ended it (`;`, `|`, a line's end, ...)."""

    line: int
    words: tuple[Word, ...]
    redirects: tuple[str, ...]
    end: str
    source: str
    depth: int = 0  # in how many brackets it stands
    position: int = 0  # in the text

    @property
    def name(self) -> str:
        """The last part of the program's name, behind keywords and assignments; empty when there is none."""
        for word in self.words:
            if word.raw not in KEYWORDS and not word.is_assignment:
                return word.text.rsplit("/", 1)[-1]
        return ""


@dataclass(slots=True)
class _Lexer:
    text: str
    position: int = 0
    line: int = 1
    raw: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    literal: bool = True
    in_word: bool = False
    words: list[Word] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    pending: str = ""  # a redirection that waits for its file's name
    documents: list[tuple[str, bool]] = field(default_factory=list)  # ends of here documents, and whether tabs go
    start: tuple[int, int] = (0, 1)
    depth: int = 0
    commands: list[Command] = field(default_factory=list)
    inner: set[int] = field(default_factory=set)  # lines that belong to a text which began in a line before them

    def read(self) -> list[Command]:
        while self.position < len(self.text):
            self._step()
        self._end_command("", self.position)
        return self.commands

    def _step(self) -> None:
        character = self.text[self.position]
        if character == "\\":
            self._take_escape()
        elif character == "#" and not self.in_word:
            end = self.text.find("\n", self.position)
            self.position = len(self.text) if end < 0 else end
        elif character in " \t\r":
            self._end_word()
            self.position += 1
        elif self._take_redirect():
            pass
        elif operator := _OPERATOR.match(self.text, self.position):
            self._take_operator(operator.group())
        else:
            self._take_part(character)

    def _take_part(self, character: str) -> None:
        if character == "'":
            self._take_single()
        elif character == '"':
            self._take_double()
        elif character in "$`":
            self._take_expansion()
        else:
            opens_expansion = character in "*?[{" or (character == "~" and not self.in_word)
            self._add(character, character, literal=not opens_expansion)

    def _add(self, raw: str, plain: str, *, literal: bool = True) -> None:
        if not self.in_word and not self.words and not self.redirects:
            self.start = (self.position, self.line)
        self.in_word = True
        self.raw.append(raw)
        self.plain.append(plain)
        self.literal = self.literal and literal
        self.position += len(raw)
        more = raw.count("\n")
        self.inner.update(range(self.line + 1, self.line + more + 1))
        self.line += more

    def _take_escape(self) -> None:
        following = self.text[self.position + 1 : self.position + 2]
        if following == "\n":
            self.position += 2
            self.line += 1
        else:
            self._add("\\" + following, following)

    def _take_single(self) -> None:
        end = self.text.find("'", self.position + 1)
        end = len(self.text) if end < 0 else end + 1
        raw = self.text[self.position : end]
        self._add(raw, raw[1:].removesuffix("'"))

    def _take_double(self) -> None:
        position, plain, literal = self.position + 1, [], True
        while position < len(self.text) and self.text[position] != '"':
            character = self.text[position]
            if character == "\\":
                following = self.text[position + 1 : position + 2]
                plain.append(following if following in '"\\$`' else "" if following == "\n" else "\\" + following)
                position += 2
            elif character in "$`" and (end := _find_expansion_end(self.text, position)) > position + 1:
                plain.append(self.text[position:end])
                position, literal = end, False
            else:
                plain.append(character)
                position += 1
        self._add(self.text[self.position : position + 1], "".join(plain), literal=literal)

    def _take_expansion(self) -> None:
        end = _find_expansion_end(self.text, self.position)
        raw = self.text[self.position : end]
        self._add(raw, raw, literal=raw == "$")

    def _take_redirect(self) -> bool:
        match = _REDIRECT.match(self.text, self.position) if self.text[self.position] in "<>&" else None
        if match is None:
            return False
        has_number = self.in_word and len(self.raw) < 4 and "".join(self.raw).isdigit()
        if not has_number:
            self._end_word()
        if self.text[match.end() : match.end() + 1] == "(" and match.group() in ("<", ">"):  # process substitution
            end = _find_bracket_end(self.text, match.end() + 1)
            raw = self.text[self.position : end]
            self._add(raw, raw, literal=False)
            return True
        number = "".join(self.raw)
        self._forget_word()
        self.pending = number + match.group()
        self.position = match.end()
        return True

    def _take_operator(self, operator: str) -> None:
        if operator == "(" and self.in_word and self.raw[-1].endswith("="):  # an array: NAME=(...)
            raw = self.text[self.position : _find_bracket_end(self.text, self.position + 1)]
            self._add(raw, raw, literal=False)
            return
        self._end_command(operator, self.position)
        self.position += len(operator)
        if operator == "(":
            self.depth += 1
        elif operator == ")":
            self.depth = max(0, self.depth - 1)
        elif operator == "\n":
            self.line += 1
            self._skip_documents()

    def _end_word(self) -> None:
        if not self.in_word:
            return
        word = Word("".join(self.raw), "".join(self.plain), self.literal)
        self._forget_word()
        if not self.pending:
            self.words.append(word)
            return
        if self.pending.lstrip("0123456789") in ("<<", "<<-"):
            self.documents.append((word.text, self.pending.endswith("-")))
        self.redirects.append(self.pending + word.raw)
        self.pending = ""

    def _forget_word(self) -> None:
        self.raw, self.plain = [], []
        self.in_word, self.literal = False, True

    def _end_command(self, end: str, position: int) -> None:
        self._end_word()
        if self.words or self.redirects:
            source = self.text[self.start[0] : position].strip()
            found = Command(
                line=self.start[1],
                words=tuple(self.words),
                redirects=tuple(self.redirects),
                end=end,
                source=source,
                depth=self.depth,
                position=self.start[0],
            )
            self.commands.append(found)
        self.words, self.redirects, self.pending = [], [], ""

    def _skip_documents(self) -> None:
        for end, strips_tabs in self.documents:
            while self.position < len(self.text):
                stop = self.text.find("\n", self.position)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.position : stop].removesuffix("\r")
                self.position = min(stop + 1, len(self.text))
                self.inner.add(self.line)
                self.line += 1
                if (line.lstrip("\t") if strips_tabs else line) == end:
                    break
        self.documents.clear()


def find_commands(text: str, first_line: int = 1) -> list[Command]:
    """The simple commands of a script, in the order they stand, whatever loops and conditions are around them."""
    return read_commands(text, first_line)[0]


def read_commands(text: str, first_line: int = 1) -> tuple[list[Command], frozenset[int]]:
    """The same, and the lines inside here documents and quoted texts, which are no lines of the script's own."""
    lexer = _Lexer(text, line=first_line)
    lexer.start = (0, first_line)
    return lexer.read(), frozenset(lexer.inner)


def _find_expansion_end(text: str, position: int) -> int:
    """Where `$NAME`, `${...}`, `$(...)` or a backquoted command that begins here ends; one further when it is none."""
    if text[position] == "`":
        return _find_quote_end(text, position, "`")
    following = text[position + 1 : position + 2]
    if following == "(":
        return _find_bracket_end(text, position + 2)
    if following == "{":
        end = text.find("}", position)
        return len(text) if end < 0 else end + 1
    if following == "'":
        return _find_quote_end(text, position + 1, "'")
    if following == '"':
        return position + 1
    name = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]").match(text, position + 1)
    return name.end() if name else position + 1


def _find_quote_end(text: str, position: int, quote: str) -> int:
    position += 1
    while position < len(text) and text[position] != quote:
        position += 2 if text[position] == "\\" else 1
    return min(position + 1, len(text))


def _find_bracket_end(text: str, position: int) -> int:
    depth = 1
    while position < len(text) and depth:
        character = text[position]
        if character == "\\":
            position += 2
            continue
        if character in "'\"`":
            position = (
                text.find("'", position + 1) + 1 if character == "'" else _find_quote_end(text, position, character)
            )
            if position <= 0:
                return len(text)
            continue
        depth += (character == "(") - (character == ")")
        position += 1
    return min(position, len(text))
