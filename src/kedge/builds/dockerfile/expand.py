# SPDX-License-Identifier: BSD-3-Clause
"""Variables, quotes and escapes of a word replaced by what they stand for, by BuildKit's rules, which are nearly sh's.

`$x` and `${x}`; `${x:-w}`, `${x:+w}`, `${x:?w}` and the same without the colon; `${x#p}`, `${x##p}`, `${x%p}`,
`${x%%p}`, `${x/p/r}` and `${x//p/r}`. Words may hold variables again.

A value can hold others many times, and those others again: a few lines could fill any memory. So what variables put
into one text is bounded, and what they put into all texts of a recipe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kedge.base.frozen import frozen
from kedge.builds.go_strings import SPACES

_DEEPEST = 50  # variables in words of variables
_SPECIAL = "@*#?-$!"
LARGEST_VALUE = 128 << 10  # characters that variables may put into one text; a longer word reaches no program of Linux
LARGEST_SUM = 16 << 20  # into all texts of a recipe
_SPACE = re.compile(f"[{SPACES}]+")


class ExpansionError(ValueError):
    """A word cannot be expanded; the message says why."""


class ExpansionLimitError(ExpansionError):
    """Variables put in more text than any recipe needs."""


class ExpansionBudget:
    """How much text variables may still put into a recipe."""

    def __init__(self, characters: int = LARGEST_SUM) -> None:
        self._left = characters

    def take(self, characters: int, so_far: int = 0) -> None:
        """Count so many more characters for a text that has got `so_far`; raises ExpansionLimitError."""
        if so_far + characters > LARGEST_VALUE:
            raise ExpansionLimitError(f"its variables put in more than {LARGEST_VALUE >> 10} KiB of text")
        self._left -= characters
        if self._left < 0:
            raise ExpansionLimitError(f"the variables of this file put in more than {LARGEST_SUM >> 20} MiB of text")


@frozen
class ExpansionRules:
    """How words are read: the defaults are those for instructions."""

    escape: str = "\\"
    keeps_quotes: bool = False
    keeps_escapes: bool = False
    has_quotes: bool = True  # False for the content of heredocs, where quotes are ordinary characters
    keeps_unset: bool = False  # a variable without a value stays as it stands
    budget: ExpansionBudget | None = None  # of the recipe that the text stands in; None: of this text alone


_DEFAULT = ExpansionRules()


@frozen
class Expansion:
    """A word without variables, the same split at its blanks, and the names it asked for."""

    text: str
    words: tuple[str, ...]
    used: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()


def expand(text: str, values: Mapping[str, str], rules: ExpansionRules = _DEFAULT) -> Expansion:
    """The word with all variables replaced; raises ExpansionError."""
    if not any(character in text for character in ("$", "<", "'", '"', rules.escape)):
        return Expansion(text, tuple(word for word in _SPACE.split(text) if word))
    reading = _Reading(text, values, rules, _compile_plain(rules), rules.budget or ExpansionBudget())
    try:
        result, words = reading.read_until("", keeps_escapes=rules.keeps_escapes)
    except PatternError as error:
        raise ExpansionError(str(error)) from None
    return Expansion(result, tuple(words), frozenset(reading.used), frozenset(reading.missing))


def _compile_plain(rules: ExpansionRules) -> re.Pattern[str]:
    """A run of characters that mean themselves in any word."""
    return re.compile(f"[^$<'\"}}/{re.escape(rules.escape)}]+")


@dataclass(slots=True)
class _Words:
    """Words in the making: blanks outside of quotes end them, and an empty one counts for nothing."""

    done: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Text that is split at blanks."""
        first, *others = _SPACE.split(text)
        self.parts.append(first)
        for word in others:
            self.end()
            self.parts.append(word)

    def end(self) -> None:
        word = "".join(self.parts)
        self.parts.clear()
        if word:
            self.done.append(word)


@dataclass(slots=True)
class _Reading:
    """One word on its way from left to right."""

    text: str
    values: Mapping[str, str]
    rules: ExpansionRules
    plain: re.Pattern[str]
    budget: ExpansionBudget
    position: int = 0
    depth: int = 0
    taken: int = 0  # characters that variables have put in
    used: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.position : self.position + 1]

    def next(self) -> str:
        character = self.peek()
        self.position += 1
        return character

    def read_until(self, stop: str, *, keeps_escapes: bool) -> tuple[str, list[str]]:
        """Return all up to the stop character, which is passed over; up to the end if there is none."""
        result: list[str] = []
        words = _Words()
        while character := self.peek():
            if character == stop:
                self.position += 1
                words.end()
                return "".join(result), words.done
            run = self.plain.match(self.text, self.position)
            if run:
                self.position = run.end()
                result.append(run[0])
                words.add(run[0])
            else:
                result.append(self._read_special(character, words, keeps_escapes))
        if stop:
            raise ExpansionError(f"'{stop}' is missing")
        words.end()
        return "".join(result), words.done

    def _read_special(self, character: str, words: _Words, keeps_escapes: bool) -> str:
        if character == "$":
            text = self._read_variable()
            words.add(text)
            return text
        if character == "<":
            text = self._read_heredoc_sign()
        elif character in "'\"" and self.rules.has_quotes:
            text = self._read_single() if character == "'" else self._read_double(keeps_escapes)
        elif character == self.rules.escape:
            self.position += 1
            text = (character if keeps_escapes else "") + self.next()
        else:
            text = self.next()
        words.parts.append(text)
        return text

    def _read_single(self) -> str:
        """Between single quotes every character means itself."""
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise ExpansionError("a single quote is missing")
        inner = self.text[self.position + 1 : end]
        self.position = end + 1
        return f"'{inner}'" if self.rules.keeps_quotes else inner

    def _read_double(self, keeps_escapes: bool) -> str:
        """Between double quotes variables count, and the escape character before `"`, `$` and itself."""
        quote = '"' if self.rules.keeps_quotes else ""
        escape = self.rules.escape
        result = [quote]
        self.position += 1
        while (character := self.peek()) != '"':
            if not character:
                raise ExpansionError("a double quote is missing")
            if character == "$":
                result.append(self._read_variable())
                continue
            self.position += 1
            if character == escape:
                if keeps_escapes:
                    result.append(escape)
                if self.peek() in ('"', "$", escape):
                    character = self.next()
            result.append(character)
        self.position += 1
        return "".join([*result, quote])

    def _read_heredoc_sign(self) -> str:
        """`<<` with the blanks behind it, which then do not end the word."""
        begin = self.position
        self.position += 1
        if self.peek() == "<":
            self.position += 1
            while self.peek() and self.peek() in "\t\r ":
                self.position += 1
        return self.text[begin : self.position]

    def _read_variable(self) -> str:
        self.position += 1
        if self.peek() != "{":
            name = self._read_name()
            return self._get_or_keep(name, f"${name}") if name else "$"
        self.position += 1
        if not self.peek():
            raise ExpansionError("'}' is missing")
        if self.peek() in "{}:":
            raise ExpansionError("bad substitution: a name must follow '${'")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ExpansionError("variables are nested too deeply")
        value = self._read_braces(self._read_name())
        self.depth -= 1
        return value

    def _read_braces(self, name: str) -> str:
        """What stands between the name and the closing brace."""
        sign = self.next()
        if sign == "}":
            return self._get_or_keep(name, f"${{{name}}}")
        if sign == "/":
            return self._replace(name)
        colon = sign if sign == ":" else ""
        sign = self.next() if colon else sign
        if not colon and sign not in tuple("+-?#%"):
            raise ExpansionError(f"'${{{name}{sign}' is not a substitution")
        if colon and sign in tuple("#%"):
            raise ExpansionError(f"'{colon}{sign}' is not a substitution")
        word, _ = self.read_until("}", keeps_escapes=sign in tuple("#%"))
        value = self._get(name)
        if value is None and self.rules.keeps_unset:
            return f"${{{name}{colon}{sign}{word}}}"
        return self._modify(name, value, colon + sign, word)

    def _modify(self, name: str, value: str | None, sign: str, word: str) -> str:
        is_unset = value is None or (sign.startswith(":") and not value)
        match sign[-1:]:
            case "-":
                return word if is_unset else value or ""
            case "+":
                return "" if is_unset else word
            case "?":
                if is_unset:
                    default = "has no value" if value is None else "is empty"
                    raise ExpansionError(f"{name}: {word or default}")
                return value or ""
            case "#" | "%" as trimmed:
                is_longest = word.startswith(trimmed)
                trim = trim_prefix if trimmed == "#" else trim_suffix
                return trim(value or "", word[is_longest:], is_longest=is_longest)
        raise ExpansionError(f"'{sign}' is not a substitution")

    def _replace(self, name: str) -> str:
        everywhere = self.peek() == "/"
        self.position += everywhere
        pattern, _ = self.read_until("/", keeps_escapes=True)
        replacement, _ = self.read_until("}", keeps_escapes=True)
        value = self._get(name)
        if value is None and self.rules.keeps_unset:
            return f"${{{name}/{pattern}/{replacement}}}"
        room = LARGEST_VALUE - self.taken
        try:
            result = replace_pattern(value or "", pattern, replacement, everywhere=everywhere, room=room)
        except ReplacementTooLong:
            self._take(LARGEST_VALUE + 1)
            raise
        self._take(max(0, len(result) - len(value or "")))
        return result

    def _read_name(self) -> str:
        """Letters, digits and `_`; a number, or one special character."""
        begin = self.position
        if self.peek() and self.peek() in _SPECIAL:
            self.position += 1
        elif self.peek().isdecimal():
            while self.peek().isdecimal():
                self.position += 1
        else:
            while self.peek().isalpha() or self.peek().isdecimal() or self.peek() == "_":
                self.position += 1
        return self.text[begin : self.position]

    def _get(self, name: str) -> str | None:
        value = self.values.get(name)
        (self.missing if value is None else self.used).add(name)
        self._take(len(value or ""))
        return value

    def _take(self, characters: int) -> None:
        """Count what a variable puts in; raises ExpansionLimitError."""
        self.budget.take(characters, self.taken)
        self.taken += characters

    def _get_or_keep(self, name: str, shown: str) -> str:
        value = self._get(name)
        return (shown if self.rules.keeps_unset else "") if value is None else value


# Patterns of the shell in `${x#p}`, `${x%p}` and `${x/p/r}`: `*`, `?` and escaped characters, no brackets.
#
# A pattern is cut at its stars into pieces of fixed length. A match then costs one search for each piece, whatever the
# pattern: a regular expression could take forever.

_ANY = ""  # stands for one character, whichever it is
_Piece = list[str]


class PatternError(ValueError):
    """The pattern cannot be read; the message says why."""


class ReplacementTooLong(Exception):
    """The result would have more characters than there is room for."""


def trim_prefix(value: str, pattern: str, *, is_longest: bool) -> str:
    """The value without what the pattern matches at its beginning."""
    end = _match_at(value, _read_pieces(pattern), 0, is_longest=is_longest)
    return value if end is None else value[end:]


def trim_suffix(value: str, pattern: str, *, is_longest: bool) -> str:
    """The value without what the pattern matches at its end."""
    pieces = [piece[::-1] for piece in reversed(_read_pieces(pattern))]
    end = _match_at(value[::-1], pieces, 0, is_longest=is_longest)
    return value if end is None else value[: len(value) - end]


def replace_pattern(value: str, pattern: str, replacement: str, *, everywhere: bool, room: int) -> str:
    """The value with the first match replaced, or all of them; a match is as long as it can be.

    Raises ReplacementTooLong before replacements take more than `room` characters.
    """
    pieces = _read_pieces(pattern)
    result: list[str] = []
    position = end = 0
    while match := _search(value, pieces, position):
        begin, last = match[0], end
        result.append(value[last:begin])
        end = match[1]
        if end > last or begin == 0:
            result.append(replacement)
            room -= len(replacement)
            if room < 0:
                raise ReplacementTooLong
        if not everywhere:
            break
        position = max(end, position + 1)
    return "".join(result) + value[end:]


def _read_pieces(pattern: str) -> list[_Piece]:
    """The characters between the stars."""
    pieces: list[_Piece] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == "*":
            pieces.append([])
        elif character == "?":
            pieces[-1].append(_ANY)
        elif character == "\\":
            pieces[-1].append(_read_escaped(next(characters, "")))
        else:
            pieces[-1].append(character)
    return pieces


def _read_escaped(character: str) -> str:
    if not character or character not in "}/*?\\":
        raise PatternError(f"'\\{character}' is not an escape in a pattern")
    return character


def _compile(piece: _Piece) -> re.Pattern[str]:
    return re.compile("".join("." if character == _ANY else re.escape(character) for character in piece), re.DOTALL)


def _match_at(value: str, pieces: list[_Piece], begin: int, *, is_longest: bool) -> int | None:
    """Where a match that begins here ends, the first or the last possible place."""
    if not _compile(pieces[0]).match(value, begin):
        return None
    end = begin + len(pieces[0])
    for number, piece in enumerate(pieces[1:], 2):
        is_last = number == len(pieces) and is_longest
        place = _find_last(value, piece, end) if is_last else _find_first(value, piece, end)
        if place is None:
            return None
        end = place + len(piece)
    return end


def _find_first(value: str, piece: _Piece, begin: int) -> int | None:
    match = _compile(piece).search(value, begin)
    return match.start() if match else None


def _find_last(value: str, piece: _Piece, begin: int) -> int | None:
    if _ANY not in piece:
        place = value.rfind("".join(piece), begin)
        return None if place < 0 else place
    compiled = _compile(piece)
    return next((at for at in range(len(value) - len(piece), begin - 1, -1) if compiled.match(value, at)), None)


def _search(value: str, pieces: list[_Piece], begin: int) -> tuple[int, int] | None:
    """The first match from here on, the longest one that begins there."""
    if begin > len(value):
        return None
    place = _find_first(value, pieces[0], begin)
    end = None if place is None else _match_at(value, pieces, place, is_longest=True)
    return None if place is None or end is None else (place, end)
