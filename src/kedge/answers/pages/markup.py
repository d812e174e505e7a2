# SPDX-License-Identifier: BSD-3-Clause
"""Elements of HTML and SVG. Text becomes markup here alone, escaped and cut: what comes from outside stays text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from html import escape

from kedge.answers.doctor import finding
from kedge.base.frozen import frozen
from kedge.compat import verdict

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


# Marks that stand before words: drawn, so that no font must have them, and of different shapes, not colours alone.

_SHAPES = {
    "check": "M3 8.6l3.3 3.2L13 4.6",
    "cross": "M4 4l8 8M12 4l-8 8",
    "waves": "M2.5 6.4c1.8-2 3.7-2 5.5 0s3.7 2 5.5 0M2.5 10.8c1.8-2 3.7-2 5.5 0s3.7 2 5.5 0",
    "arrow": "M8 13.2V3.2M3.8 7.2L8 3l4.2 4.2",
    "bolt": "M9.4 2L4.2 8.8h7.2L6.6 14.2",
    "question": "M5.3 5.6a2.7 2.7 0 1 1 4 2.4c-.9.5-1.3 1-1.3 2M8 13.1v.1",
    "exclamation": "M8 2.8v6.4M8 13v.1",
    "letter": "M8 7v6.2M8 3.2v.1",
    "dash": "M4 8h8",
}


@frozen
class MarkStyle:
    """How one outcome or level is shown: shape, tone (a class of the stylesheet) and words."""

    shape: str
    tone: str  # good, fair, other, bad, plain
    word: str
    answer: str = ""  # of an outcome: the short one, above the sentence that says all


_OUTCOME_LOOKS = {
    verdict.NATIVE: MarkStyle("check", "good", "Runs natively", "It runs"),
    verdict.MINOR: MarkStyle("waves", "fair", "Runs by minor-version compatibility", "It runs, with a limit"),
    verdict.FORWARD: MarkStyle(
        "arrow", "other", "Runs by forward compatibility", "It runs, with the image's own driver library"
    ),
    verdict.PTX: MarkStyle("bolt", "fair", "Runs from PTX, compiled at start", "It runs, but starts slowly"),
    verdict.NO: MarkStyle("cross", "bad", "Does not run", "It does not run"),
    verdict.UNKNOWN: MarkStyle("question", "plain", "Unknown", "Unknown whether it runs"),
}
_LEVEL_LOOKS = {
    verdict.FAIL: MarkStyle("cross", "bad", "Problem"),
    verdict.WARNING: MarkStyle("exclamation", "fair", "Warning"),
    verdict.NOTE: MarkStyle("letter", "other", "Note"),
    verdict.OPEN: MarkStyle("question", "plain", "Unknown"),
    verdict.OK: MarkStyle("check", "good", "OK"),
    finding.SKIPPED: MarkStyle("dash", "plain", "Not checked"),
}


def find_outcome_look(outcome: str) -> MarkStyle:
    """How an outcome is shown; any other text counts as unknown."""
    return _OUTCOME_LOOKS.get(outcome, _OUTCOME_LOOKS[verdict.UNKNOWN])


def find_level_look(level: str) -> MarkStyle:
    """How a level is shown."""
    return _LEVEL_LOOKS.get(level, _LEVEL_LOOKS[verdict.OPEN])


def make_mark(look: MarkStyle) -> Markup:
    """The mark before a word. The word says the same, so it is hidden from readers that speak."""
    used = make_element("use", href=f"#mark-{look.shape}")
    return make_element("svg", used, class_=f"mark {look.tone}", viewBox="0 0 16 16", aria_hidden="true")


def draw_marks() -> Markup:
    """Return all shapes, once for each page."""
    symbols = (
        make_element("symbol", make_element("path", d=path), id=f"mark-{name}", viewBox="0 0 16 16")
        for name, path in _SHAPES.items()
    )
    return make_element("svg", join_markup(symbols), class_="shapes", width=0, height=0, aria_hidden="true")
