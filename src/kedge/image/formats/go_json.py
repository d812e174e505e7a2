# SPDX-License-Identifier: BSD-3-Clause
"""JSON text as Go's encoder writes it, so that Apptainer's files and ours compare equal."""

from __future__ import annotations

import json

# Go escapes these for the sake of web pages; U+2028 and U+2029 end a line in JavaScript
_ESCAPES = str.maketrans({"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def encode_json(value: object, *, indent: str | None = None) -> str:
    """The value as JSON text; keys keep their order. These characters only ever stand inside strings."""
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return text.translate(_ESCAPES)


def clean_text(text: str) -> str:
    """The text with halves of surrogate pairs, which JSON can smuggle in, replaced; it can be encoded as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode_text(text: str) -> bytes:
    """The text as UTF-8, whatever JSON had in it."""
    return clean_text(text).encode()
