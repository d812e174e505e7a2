# SPDX-License-Identifier: BSD-3-Clause
"""Patterns of the shell in `${x#p}`, `${x%p}` and `${x/p/r}`: `*`, `?` and escaped characters, no brackets.

A pattern is cut at its stars into pieces of fixed length. A match then costs one search for each piece, whatever the
pattern: a regular expression could take forever.
"""

from __future__ import annotations

import re

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
