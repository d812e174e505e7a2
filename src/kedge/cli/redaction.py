# SPDX-License-Identifier: BSD-3-Clause
"""Takes passwords and tokens out of text before it is shown or written to a log, and what would steer a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kedge.base.patterns import late_pattern

HIDDEN = "***"
_MARKS = ("://", "?", "&", "bearer", "basic", "authorization")  # one of them is before every such secret
# the short forms of `registry login --password` and `key newpair --password`, with their values or before them
_SHORT_SECRETS = {"login": "-p", "newpair": "-P"}
_LEADING_OPTIONS = late_pattern(r"(?:--[A-Za-z][\w.-]*=)+")  # --option=--env= of --option=--env=NAME=VALUE
_PASSES_WORDS = ("--option", "--directive")  # each brings one word of another program's command line


def redact(text: str) -> str:
    """The text without the secrets that addresses and headers carry."""
    lowered = text.lower()
    if not any(mark in lowered for mark in _MARKS):
        return text
    from kedge.base.secret_text import redact as hide  # late: most messages have no address in them

    return hide(text)


def escape_controls(text: str) -> str:
    """The text with what steers a terminal or cannot be seen written as escapes, newlines and tabs apart.

    Not control characters alone: those that turn the direction of text make a line read as another.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text)


def escape_line(text: str) -> str:
    """Escape a name inside of a line, newlines and tabs too; also where a pipe leads to the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def escape_json(text: str) -> str:
    """Escape a JSON document, which stays the same document: all control characters in it are in strings."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def redact_arguments(argv: Sequence[str]) -> list[str]:
    """A command line without the values of options that carry secrets and of variables, whichever option has them."""
    from kedge.base.secret_text import is_secret_option  # late: only bugs and reports show command lines

    shown: list[str] = []
    hide_next = False
    short = next((option for word, option in _SHORT_SECRETS.items() if word in argv), None)
    for word in argv:
        if hide_next and not word.startswith("-"):
            shown.append(HIDDEN)
        elif short is not None and word.startswith(short) and word != short:
            shown.append(f"{short}{HIDDEN}")
        else:
            shown.append(_hide_values(word))
        is_between = hide_next and word in _PASSES_WORDS
        hide_next = is_between or word == short or is_secret_option(word.rpartition("=")[2])
    return shown


def _hide_values(word: str) -> str:
    """Return one word with stars for all behind the first `=` that does not belong to an option before it.

    Not for variables with certain names alone: a secret can have any. Nor for a part of the rest: how far a value goes
    is for whoever takes the word to say, a shell or a scheduler.
    """
    from kedge.base.secret_text import is_secret_option, mask_secrets  # late: as above

    found = _LEADING_OPTIONS.match(word)
    options = found.group() if found else ""
    if any(is_secret_option(each) for each in options.split("=")):
        return f"{options}{HIDDEN}"
    name, equals, _ = mask_secrets(redact(word[len(options) :])).partition("=")
    return f"{options}{name}={HIDDEN}" if equals else f"{options}{name}"
