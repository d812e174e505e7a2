# SPDX-License-Identifier: BSD-3-Clause
"""Words of shell text: quotes, backslashes and plain parameters, with the meaning that every POSIX shell gives them.

What needs a real shell (commands, arithmetic, patterns, tildes, positional parameters) raises `NotPlain`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Lookup = Callable[[str], str | None]  # the value of a variable, None when it is unset

_BLANKS = " \t"
_ENDS = " \t\n;"
_SHELL_ONLY = "`<>&|(){}~"  # outside quotes these mean work for a shell
_PATTERNS = "*?["
_PLAIN_STOPS = frozenset(_ENDS + _SHELL_ONLY + _PATTERNS + "\\'\"$")
_ESCAPABLE = '$`"\\\n'
# Shells make these up themselves, each in its own way.
_DYNAMIC = frozenset(
    (
        *("IFS", "OPTIND", "PPID", "RANDOM", "SECONDS", "LINENO", "HOSTNAME", "HOSTTYPE", "MACHTYPE", "OSTYPE"),
        *("SHLVL", "OLDPWD", "PS2", "PS4", "COLUMNS", "LINES", "EPOCHSECONDS", "SHELLOPTS", "FUNCNAME", "_"),
    )
)


class NotPlain(Exception):
    """This text needs a real shell."""


def is_name(text: str) -> bool:
    """Whether it can be the name of a variable."""
    return text.isascii() and text.isidentifier()


def read_word(text: str, at: int, lookup: Lookup, *, is_value: bool = True) -> tuple[str, int]:
    """The word that starts at `at`, and where it ends; a value is not split and matches no files."""
    pieces: list[str] = []
    size = len(text)
    while at < size:
        character = text[at]
        if character in _ENDS:
            break
        if character == '"':
            piece, at = _read_quoted(text, at + 1, lookup)
        elif character in "'\\$":
            piece, at = _read_part(text, at, lookup)
            if character == "$" and not is_value and (not piece or any(special in piece for special in " \t\n*?[")):
                raise NotPlain("it would be split")
        elif character in _SHELL_ONLY or (character in _PATTERNS and not is_value):
            raise NotPlain(text[at:])
        else:
            piece, at = _read_plain(text, at)
        pieces.append(piece)
    return "".join(pieces), at


def split_words(text: str, lookup: Lookup) -> list[str]:
    """The words of one line, as the arguments of a command."""
    words: list[str] = []
    at = 0
    while True:
        while at < len(text) and text[at] in _BLANKS:
            at += 1
        if at >= len(text):
            return words
        if text[at] in "\n;#":
            raise NotPlain(text)
        try:
            word, at = read_word(text, at, lookup, is_value=False)
        except RecursionError:
            raise NotPlain("nested too deeply") from None
        words.append(word)


def expand_quoted(text: str, lookup: Lookup) -> str:
    """What text inside double quotes comes to; a double quote in it is an ordinary character."""
    if "\\" not in text and "$" not in text and "`" not in text:
        return text
    escaped = text.replace('"', '\\"')
    try:
        value, end = _read_quoted(escaped + '"', 0, lookup)
    except RecursionError:
        raise NotPlain("nested too deeply") from None
    if end != len(escaped) + 1:
        raise NotPlain(text)
    return value


def quote(text: str) -> str:
    """Text in single quotes, for any shell."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _read_plain(text: str, at: int) -> tuple[str, int]:
    end = at + 1
    while end < len(text) and text[end] not in _PLAIN_STOPS:
        end += 1
    return text[at:end], end


def _read_escaped(text: str, at: int) -> tuple[str, int]:
    following = text[at + 1 : at + 2]
    if not following:
        raise NotPlain("a backslash at the end")
    return "" if following == "\n" else following, at + 2


def _read_quoted(text: str, at: int, lookup: Lookup) -> tuple[str, int]:
    """The inside of double quotes from `at` on, and the place after the closing one."""
    end = text.find('"', at)
    piece = text[at:end]
    if end >= 0 and "\\" not in piece and "$" not in piece and "`" not in piece:
        return piece, end + 1
    pieces: list[str] = []
    while at < len(text):
        character = text[at]
        if character == '"':
            return "".join(pieces), at + 1
        piece, at = _read_inside(text, at, lookup)
        pieces.append(piece)
    raise NotPlain("a quote that is not closed")


def _read_inside(text: str, at: int, lookup: Lookup, also_escaped: str = "") -> tuple[str, int]:
    """One step inside double quotes."""
    character = text[at]
    if character == "`":
        raise NotPlain(text[at:])
    if character == "$":
        return _read_parameter(text, at, lookup, is_quoted=True)
    if character == "\\":
        following = text[at + 1 : at + 2]
        if following and following in _ESCAPABLE + also_escaped:
            return "" if following == "\n" else following, at + 2
        return "\\", at + 1
    return character, at + 1


def _read_parameter(text: str, at: int, lookup: Lookup, *, is_quoted: bool) -> tuple[str, int]:
    """`$NAME`, `${NAME}`, `${NAME:-word}` and the like; a dollar before anything else is itself."""
    start = at + 1
    following = text[start : start + 1]
    if following == "{":
        return _read_braces(text, start + 1, lookup, is_quoted=is_quoted)
    if not is_name(following):
        if following and following in ("0123456789@*#?!$-(" if is_quoted else "0123456789@*#?!$-('\"["):
            raise NotPlain(text[at:])
        return "$", start
    end = _find_name_end(text, start)
    return _look_up(text[start:end], lookup) or "", end


def _read_braces(text: str, at: int, lookup: Lookup, *, is_quoted: bool) -> tuple[str, int]:
    end = _find_name_end(text, at)
    name = text[at:end]
    if not is_name(name):
        raise NotPlain(text[at:])
    value = _look_up(name, lookup)
    if text[end : end + 1] == "}":
        return value or "", end + 1
    has_colon = text[end : end + 1] == ":"
    end += has_colon
    operator = text[end : end + 1]
    if not operator or operator not in "-+":
        raise NotPlain(text[at:])
    word, end = _read_default(text, end + 1, lookup, is_quoted=is_quoted)
    is_there = bool(value) if has_colon else value is not None
    if operator == "+":
        return word if is_there else "", end
    return value or "" if is_there else word, end


def _read_default(text: str, at: int, lookup: Lookup, *, is_quoted: bool) -> tuple[str, int]:
    """The word of `${NAME:-word}`, up to the brace that closes it."""
    pieces: list[str] = []
    while at < len(text):
        character = text[at]
        if character == "}":
            return "".join(pieces), at + 1
        if character == '"':
            piece, at = _read_quoted(text, at + 1, lookup)
        elif is_quoted:
            if character in "'{":
                raise NotPlain(text[at:])
            piece, at = _read_inside(text, at, lookup, "}")
        elif character in "'\\$":
            piece, at = _read_part(text, at, lookup)
        elif character in _SHELL_ONLY or character in _ENDS:
            raise NotPlain(text[at:])
        else:
            piece, at = character, at + 1
        pieces.append(piece)
    raise NotPlain("a brace that is not closed")


def _read_part(text: str, at: int, lookup: Lookup) -> tuple[str, int]:
    """A quoted, escaped or expanded part of a word outside double quotes."""
    if text[at] == "'":
        end = text.find("'", at + 1)
        if end < 0:
            raise NotPlain(text[at:])
        return text[at + 1 : end], end + 1
    if text[at] == "\\":
        return _read_escaped(text, at)
    return _read_parameter(text, at, lookup, is_quoted=False)


def _find_name_end(text: str, at: int) -> int:
    while at < len(text) and text[at].isascii() and (text[at].isalnum() or text[at] == "_"):
        at += 1
    return at


def _look_up(name: str, lookup: Lookup) -> str | None:
    value = lookup(name)
    if value is None and (name in _DYNAMIC or (name.startswith("BASH") and name != "BASH_ENV")):
        raise NotPlain(name)
    return value
