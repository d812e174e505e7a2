# SPDX-License-Identifier: BSD-3-Clause
"""The syntax of a Dockerfile in the notation of BuildKit's parser, to compare the two: `(run "echo hello")`."""

from __future__ import annotations

from kedge.builds.dockerfile.syntax import DockerfileNode, DockerfileSyntax
from kedge.builds.go_strings import SPACES

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
