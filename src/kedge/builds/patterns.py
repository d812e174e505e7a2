# SPDX-License-Identifier: BSD-3-Clause
"""Patterns of file names as Docker reads them: `.dockerignore`, `COPY --exclude`, and wildcards of COPY sources.

Ignore patterns match whole paths from the context's root; the last pattern that matches a path or a directory above it
decides, and one with `!` takes back what was left out before. Wildcards of sources are those of Go's `path.Match`.
Facts: https://docs.docker.com/build/concepts/context/#dockerignore-files, https://pkg.go.dev/path#Match
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


class BadPattern(ValueError):
    """A pattern that cannot be read; the text says why."""


# -- wildcards of sources


def has_wildcard(text: str) -> bool:
    """Whether a path holds `*`, `?` or `[` that no backslash takes the meaning from."""
    return bool(re.search(r"[*?\[]", re.sub(r"\\.", "", text, flags=re.DOTALL)))


def unescape(text: str) -> str:
    """A name without wildcards, as the file system has it: `\\[x` means `[x`."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def escape(text: str) -> str:
    """A pattern that matches this very text."""
    return re.sub(r"([*?\[\\])", r"\\\1", text)


_ALTERNATIVES = re.compile(r"(?<!\\)\{((?:[^{}\\]|\\.)*,(?:[^{}\\]|\\.)*)\}", re.DOTALL)
_MOST_ALTERNATIVES = 10_000


def expand_braces(text: str) -> list[str]:
    """The patterns that `{a,b}.txt` stands for, as a shell expands it, innermost braces first. Raises BadPattern."""
    expanded: list[str] = []
    pending = [text]
    while pending:
        first = pending.pop(0)
        match = _ALTERNATIVES.search(first)
        if match is None:
            expanded.append(first)
        else:
            words = re.split(r"(?<!\\),", match[1])
            pending[:0] = [f"{first[: match.start()]}{word}{first[match.end() :]}" for word in words]
        if len(pending) + len(expanded) > _MOST_ALTERNATIVES:
            raise BadPattern(f"'{text[:60]}' stands for more than {_MOST_ALTERNATIVES:,} names")
    return list(dict.fromkeys(expanded))


def compile_wildcard(text: str) -> re.Pattern[str]:
    """An expression for one name or path; `*` and `?` do not match a slash. Raises BadPattern."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "*":
            parts.append("[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "[":
            piece, position = _read_class(text, position)
            parts.append(piece)
        elif character == "\\":
            if position == len(text):
                raise BadPattern(f"'{text}' ends with a backslash")
            parts.append(re.escape(text[position]))
            position += 1
        else:
            parts.append(re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def _read_class(text: str, position: int) -> tuple[str, int]:
    """A class such as `[a-z]` or `[^0-9]` as an expression, and where it ends."""
    is_negated = text.startswith("^", position)
    position += is_negated
    ranges: list[str] = []
    while not ranges or not text.startswith("]", position):
        low, position = _read_member(text, position)
        high = low
        if text.startswith("-", position):
            high, position = _read_member(text, position + 1)
        if low <= high:
            ranges.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            ranges.append("")  # matches nothing
    members = "".join(ranges)
    if not members:
        return ("[^/]" if is_negated else "(?!)"), position + 1
    return (f"[^{members}/]" if is_negated else f"[{members}]"), position + 1


def _read_member(text: str, position: int) -> tuple[str, int]:
    if position >= len(text) or text[position] in "-]":
        raise BadPattern(f"'{text}' has a class without an end or with an empty range")
    if text[position] == "\\":
        position += 1
        if position >= len(text):
            raise BadPattern(f"'{text}' ends with a backslash")
    if position + 1 >= len(text):
        raise BadPattern(f"'{text}' has a '[' without a ']'")
    return text[position], position + 1


# -- patterns that leave files out


@dataclass(frozen=True)
class IgnorePattern:
    """One line of `.dockerignore`: a cleaned pattern, and whether it takes back (`!`) what others left out."""

    text: str
    takes_back: bool = False

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(_translate(self.text))

    @cached_property
    def _parts(self) -> tuple[re.Pattern[str] | None, ...]:
        """An expression for each name of the pattern; None for `**`, which stands for any number of names."""
        parts = self.text.split("/")
        return tuple(None if "**" in part else re.compile(_translate(part)) for part in parts)

    def matches(self, path: str) -> bool:
        """Whether the pattern matches this very path."""
        return self._expression.fullmatch(path) is not None

    def may_match_below(self, path: str) -> bool:
        """Whether the pattern may match something below a directory."""
        for part, name in zip(self._parts, path.split("/"), strict=False):
            if part is None:
                return True
            if part.fullmatch(name) is None:
                return False
        return len(self._parts) > path.count("/") + 1


def _translate(text: str) -> str:
    """An expression for the pattern: `**` crosses slashes, `*` and `?` do not."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "*" and text.startswith("*", position):
            position += 1
            if text.startswith("/", position):
                position += 1
            parts.append("(?:.*/)?" if position < len(text) else ".*")
        elif character == "*":
            parts.append("[^/]*")
        elif character == "?":
            parts.append("[^/]")
        elif character == "[":
            piece, position = _read_class(text, position)
            parts.append(piece)
        elif character == "\\" and position < len(text):
            parts.append(re.escape(text[position]))
            position += 1
        else:
            parts.append(re.escape(character))
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class MatchState:
    """What the patterns say about a path, and which of them match it or a directory above it."""

    is_left_out: bool
    matched: tuple[bool, ...]


class IgnorePatterns:
    """Which paths are left out. Asked from the top down: what is known of a directory holds for what is below it."""

    def __init__(self, patterns: Iterable[IgnorePattern] = ()) -> None:
        self.patterns = tuple(patterns)
        self.top = MatchState(False, (False,) * len(self.patterns))
        for pattern in self.patterns:
            compile_wildcard(pattern.text)  # raises for what cannot be read
        self._take_back = [pattern for pattern in self.patterns if pattern.takes_back]

    def __bool__(self) -> bool:
        return bool(self.patterns)

    @cached_property
    def _any(self) -> re.Pattern[str]:
        """Matches what one of the patterns matches: most paths of a context are asked no more than this."""
        return re.compile("|".join(f"(?:{_translate(pattern.text)})" for pattern in self.patterns))

    def match(self, path: str, above: MatchState) -> MatchState:
        """Return what is known of a path, from what is known of its directory."""
        if not self.patterns or not self._any.fullmatch(path):
            return above
        matched = tuple(
            known or pattern.matches(path) for known, pattern in zip(above.matched, self.patterns, strict=True)
        )
        is_left_out = False
        for does_match, pattern in zip(matched, self.patterns, strict=True):
            if does_match:
                is_left_out = not pattern.takes_back
        return MatchState(is_left_out, matched)

    def leaves_out(self, path: str) -> bool:
        """Whether a path is left out, asked on its own."""
        state = self.top
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            state = self.match("/".join(parts[:count]), state)
        return state.is_left_out

    def may_take_back_below(self, path: str) -> bool:
        """Whether something below a directory that is left out may be taken back."""
        return any(pattern.may_match_below(path) for pattern in self._take_back)


def parse_ignore_file(text: str) -> IgnorePatterns:
    """The patterns of a `.dockerignore` file. Raises BadPattern."""
    lines = text.removeprefix("\ufeff").split("\n")
    return parse_ignore_lines(line.removesuffix("\r") for line in lines if not line.startswith("#"))


def parse_ignore_lines(lines: Iterable[str]) -> IgnorePatterns:
    """Patterns one by one, as `.dockerignore` and `COPY --exclude` have them. Raises BadPattern."""
    patterns: list[IgnorePattern] = []
    for line in lines:
        text = line.strip()
        takes_back = text.startswith("!")
        text = text.removeprefix("!").strip() if takes_back else text
        if not text:
            if takes_back:
                raise BadPattern("'!' needs a pattern behind it")
            continue
        patterns.append(IgnorePattern(_clean(text), takes_back))
    return IgnorePatterns(patterns)


def _clean(text: str) -> str:
    """The path without `.` and empty names, `..` applied, and without a slash at its beginning or end."""
    cleaned = posixpath.normpath(text)
    cleaned = cleaned[1:] if cleaned.startswith("//") else cleaned
    return cleaned[1:] if len(cleaned) > 1 and cleaned.startswith("/") else cleaned
