# SPDX-License-Identifier: BSD-3-Clause
"""Elements of HTML and SVG. Text becomes markup here alone, escaped and cut: what comes from outside stays text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from html import escape

LONGEST_TEXT = 800  # characters of one piece of text; the pages cut shorter where they must
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))  # these steer a reader's eye or program
_MARKS = frozenset(("Mn", "Me"))
_MOST_MARKS = 2  # combining ones on one letter; more of them paint over the lines above
# of kedge, so that a command is told from `kedge does this`
VERBS = ("alloc", "cache", "config", "data", "doctor", "exec", "explain", "inspect", "key", "logs", "pull", "recommend",
         "registry", "run", "search", "shell", "sif", "site", "status", "submit", "tags")  # fmt: skip
_VOID = frozenset(("meta", "use", "rect", "path", "br"))
# Set as code: what stands in `backquotes` or 'quotes', which are no apostrophes; in advice also commands without them,
# from where one can begin to where a sentence goes on.
_QUOTED = r"`([^`]{1,300})`|(?<![^\s(])'([^']{1,300})'(?!\w)"
_BARE = (
    r"|(?:\A|(?<=: )|(?<=; ))((?:export|unset|ulimit|kedge"
    rf" (?:{'|'.join(VERBS)}))\b[^;]{{0,300}}?)(?=;|, | \(|\.? *\Z|\. )"
)
_CODE = re.compile(_QUOTED)
_COMMANDS = re.compile(_QUOTED + _BARE)


class Markup(str):
    """Text that is markup already: nothing escapes it again."""

    __slots__ = ()


def clean_text(text: object, limit: int = LONGEST_TEXT) -> str:
    """Return one line of harmless text: spaces for all white space, invisible characters as escapes, cut at `limit`."""
    kept, marks = [], 0
    for letter in " ".join(str(text)[: 4 * limit].split())[: limit + 1]:
        category = unicodedata.category(letter)
        marks = marks + 1 if category in _MARKS else 0
        kept.append(_name_letter(letter) if category in _INVISIBLE or marks > _MOST_MARKS else letter)
    cleaned = "".join(kept)
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"


def _name_letter(letter: str) -> str:
    return f"\\u{{{ord(letter):x}}}"


def make_element(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` is `class` and `aria_label` is `aria-label`; None leaves an attribute or a child out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(clean_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{written} />")
    return Markup(f"<{name}{written}>{join_markup(children)}</{name}>")


def join_markup(children: Iterable[object]) -> Markup:
    """Pieces after each other; what is not markup is escaped."""
    return Markup(
        "".join(each if isinstance(each, Markup) else escape(clean_text(each)) for each in children if each is not None)
    )


def format_sentence(text: str, code: re.Pattern[str] = _CODE) -> Markup:
    """A sentence in which what is quoted is set as code."""
    pieces: list[object] = []
    place = 0
    cleaned = clean_text(text)
    for found in code.finditer(cleaned):
        shown = next(group for group in found.groups() if group)
        pieces += [_keep_spaces(cleaned[place : found.start()]), make_element("code", shown)]
        place = found.end()
    return join_markup([*pieces, _keep_spaces(cleaned[place:])])


def format_advice(text: str) -> Markup:
    """Advice of several lines: those that are indented or begin with `$ ` are commands in a block of their own."""
    made: list[Markup] = []
    commands: list[str] = []
    for line in str(text)[: 8 * LONGEST_TEXT].splitlines()[:40]:
        if line.startswith(("    ", "\t", "$ ")) and line.strip():
            commands.append(clean_text(line.removeprefix("$ ")))
            continue
        made += [
            *_make_block(commands),
            *([make_element("p", format_sentence(line, _COMMANDS))] if line.strip() else []),
        ]
        commands = []
    return join_markup([*made, *_make_block(commands)])


def _make_block(commands: list[str]) -> list[Markup]:
    if not commands:
        return []
    return [make_element("pre", make_element("code", Markup("\n".join(escape(each) for each in commands))))]


def _keep_spaces(text: str) -> Markup:
    """A part of a line that is clean already, with the spaces at its ends."""
    return Markup(escape(text))
