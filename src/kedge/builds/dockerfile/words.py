# SPDX-License-Identifier: BSD-3-Clause
"""How the text behind an instruction becomes words, each kind of instruction by its own rule.

Quotes and variables stay in the words: they are taken out when the values are known (`expand`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from kedge.builds.go_strings import SPACES

BLANKS = re.compile(r"[\t\v\f\r ]+")
_ASCII_SPACES = "\t\n\v\f\r "  # flags know no others
_INVALID = re.compile("[\udc80-\udcff]")  # bytes that are no UTF-8, as `surrogateescape` has them
_SURROGATE = re.compile("[\ud800-\udfff]")


class WordsError(ValueError):
    """The text cannot be read; the message says why."""


def split_instruction(line: str, escape: str) -> tuple[str, tuple[str, ...], str]:
    """The name of an instruction, its flags, and the text behind them."""
    name, *rest = BLANKS.split(line.strip(SPACES), maxsplit=1)
    if not rest:
        return name, (), ""
    flags, begin = _take_flags(rest[0], escape)
    return name, tuple(flags), rest[0][begin:].strip(SPACES)


def _take_flags(text: str, escape: str) -> tuple[list[str], int]:
    """The words at the beginning that start with `--`, without their quotes, and where the rest begins."""
    flags: list[str] = []
    position = 0
    while True:
        while position < len(text) and text[position] in _ASCII_SPACES:
            position += 1
        if not text.startswith("--", position):
            return flags, position
        word, position = _take_flag(text, position, escape)
        if word == "--":
            return flags, position
        flags.append(word)


def _take_flag(text: str, position: int, escape: str) -> tuple[str, int]:
    """A flag without quotes and escapes, and the position behind it."""
    word: list[str] = []
    quote = ""
    while position < len(text):
        character = text[position]
        if not quote and character in _ASCII_SPACES:
            break
        position += 1
        if character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        elif character != escape:
            word.append(character)
        elif position < len(text):
            word.append(text[position])
            position += 1
    return "".join(word), position


def split_words(text: str, escape: str) -> list[str]:
    """Words between blanks, with their quotes and escapes as they stand."""
    words = []
    for match in _WORDS[escape].finditer(_INVALID.sub("\ufffd", text)):
        word = match[0][:-1] if match["dangling"] or match["quoted"] else match[0]
        if word:
            words.append(word)
    return words


def _compile_words(escape: str) -> re.Pattern[str]:
    """A word: characters, escaped ones, and quotes, which may stay open at the end; a last escape is dropped."""
    mark = re.escape(escape)
    return re.compile(
        rf"(?:[^{SPACES}'\"{mark}]+|'[^']*'?|\"(?:[^\"{mark}]+|{mark}.)*(?:\"|(?P<quoted>{mark}\Z)|\Z)"
        rf"|{mark}.|(?P<dangling>{mark}\Z))+",
        re.DOTALL,
    )


_WORDS = {escape: _compile_words(escape) for escape in "\\`"}


def read_strings(text: str) -> tuple[str, ...] | None:
    """The strings of a JSON array, or None if the text is none; an array of anything else is refused."""
    trimmed = text.lstrip(SPACES)
    if not trimmed.startswith("["):
        return None
    try:
        values = json.loads(trimmed, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(value, str) for value in values):
        raise WordsError("an array in JSON must hold strings only")
    return tuple(_SURROGATE.sub("\ufffd", value) for value in values)


def _refuse_constant(name: str) -> object:
    raise ValueError(name)  # NaN and Infinity are no JSON


Arguments = tuple[tuple[str, ...], bool]  # the words, and whether they stood in a JSON array


def _read_one(text: str, _: str) -> Arguments:
    return ((text,) if text else ()), False


def _read_list(text: str, _: str) -> Arguments:
    return (tuple(BLANKS.split(text)) if text else ()), False


def _read_names(text: str, escape: str) -> Arguments:
    return tuple(split_words(text, escape)), False


def _read_strings_or_one(text: str, escape: str) -> Arguments:
    strings = read_strings(text)
    return _read_one(text, escape) if strings is None else (strings, True)


def _read_strings_or_list(text: str, escape: str) -> Arguments:
    strings = read_strings(text)
    return _read_list(text, escape) if strings is None else (strings, True)


def _read_health(text: str, escape: str) -> Arguments:
    kind, *rest = re.split(f"[{SPACES}]+", text, maxsplit=1)
    if not kind:
        return (), False
    words, is_json = _read_strings_or_one(rest[0] if rest else "", escape)
    return (kind, *words), is_json


def _read_pairs(text: str, escape: str) -> Arguments:
    """Three words for each pair: name, value, and `=` or, for the old form `ENV name value`, nothing."""
    words = split_words(text, escape)
    if not words:
        return (), False
    if "=" not in words[0]:
        name, *rest = BLANKS.split(text, maxsplit=1)
        if not rest:
            raise WordsError(f"'{name}' has no value")
        return (name, rest[0], ""), False
    pairs: list[str] = []
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise WordsError(f"'{word}' has no '='")
        pairs += (name, value, "=")
    return tuple(pairs), False


_READERS: dict[str, Callable[[str, str], Arguments]] = {
    "add": _read_strings_or_list,
    "arg": _read_names,
    "cmd": _read_strings_or_one,
    "copy": _read_strings_or_list,
    "entrypoint": _read_strings_or_one,
    "env": _read_pairs,
    "expose": _read_list,
    "from": _read_list,
    "healthcheck": _read_health,
    "label": _read_pairs,
    "maintainer": _read_one,
    "run": _read_strings_or_one,
    "shell": _read_strings_or_one,
    "stopsignal": _read_one,
    "user": _read_one,
    "volume": _read_strings_or_list,
    "workdir": _read_one,
}
INSTRUCTIONS = (*sorted(name.upper() for name in _READERS), "ONBUILD")


def read_arguments(name: str, text: str, escape: str) -> Arguments:
    """The words of an instruction; one that is unknown has an empty word, as BuildKit's parser has it."""
    reader = _READERS.get(name)
    return reader(text, escape) if reader else (("",), False)
