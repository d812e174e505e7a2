# SPDX-License-Identifier: BSD-3-Clause
"""What tomllib leaves out: on which line a key stands, and how values are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(
    r'(?P<string>"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}" + r'|"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*')"
    r"|(?P<comment>\#[^\n]*)|(?P<line>\n)|(?P<mark>[\[\]{}=.,])|(?P<bare>[^\s\[\]{}=.,\"'\#]+)|(?P<space>[^\S\n]+)",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 110
_DOTS = 16
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
Path = tuple[str, ...]


def find_lines(text: str) -> dict[Path, int]:
    """The line of every table and key; keys of inline tables are not among them.

    To be called before tomllib, which needs minutes for names of many thousand parts: those raise ValueError. In a
    text that is no TOML it finds what stands before the mistake.
    """
    lines: dict[Path, int] = {}
    table: Path = ()
    for line, names, is_header in _list_statements(text):
        if is_header:
            table = names[:_DOTS]
            lines.setdefault(table, line)
            continue
        path = (*table, *names)[: 3 * _DOTS]  # what is no TOML may have more
        for count in range(len(table) + 1, len(path) + 1):
            lines.setdefault(path[:count], line)
    return lines


def _list_statements(text: str) -> Iterator[tuple[int, Path, bool]]:
    """The first line of each statement, the names before its `=` or in its header, and whether it is a header."""
    names: list[str] = []
    line, depth, dots, is_header, in_value = 1, 0, 0, False, False
    for kind, content in _list_tokens(text.replace("\r\n", "\n") + "\n"):
        dots = 0 if kind == "line" or content in ("[", "{", ",", "=") else dots + (content == ".")
        if dots > _DOTS:
            raise ValueError(f"a name with more than {_DOTS} dots (at line {line})")
        if kind == "line" and depth <= 0:
            if is_header:
                yield line, tuple(names), True
            names, depth, is_header, in_value = [], 0, False, False
        elif kind == "mark" and in_value:
            depth += (content in "[{") - (content in "]}")
        elif kind == "mark" and content == "=":
            yield line, tuple(names), False
            in_value = True
        elif kind == "mark":
            is_header = is_header or content == "["
        elif not in_value and kind in ("string", "bare"):
            names.append(_unquote(content) if kind == "string" else content)
        line += content.count("\n")


def _list_tokens(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while token := _TOKEN.match(text, place):
        place = token.end()
        yield token.lastgroup or "", token[0]


def _unquote(key: str) -> str:
    import tomllib  # late: few keys are quoted

    return str(next(iter(tomllib.loads(f"{key} = 0"))))


def write_text(text: str) -> str:
    """A string; raises ValueError for what no TOML can hold: bytes that are no text."""
    text.encode()
    if "\\" in text and "'" not in text and text.isprintable():
        return f"'{text}'"  # patterns and paths are easier to read without their backslashes doubled
    return (
        '"'
        + "".join(
            _ESCAPES.get(character) or (character if character.isprintable() else _escape(character))
            for character in text
        )
        + '"'
    )


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def write_key(key: str) -> str:
    """A key, quoted where it has to be."""
    return key if _BARE_KEY.fullmatch(key) else write_text(key)


def write_list(texts: Sequence[str]) -> str:
    """A list of texts, over several lines where it is long."""
    written = [write_text(text) for text in texts]
    line = f"[{', '.join(written)}]"
    if len(line) <= _WIDTH:
        return line
    return "[\n" + "".join(f"    {quoted},\n" for quoted in written) + "]"
