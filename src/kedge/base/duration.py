# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes durations, in formats that mean the same to every scheduler.

`2h`, `90m`, `1d12h`, `H:MM:SS` and `D-HH[:MM[:SS]]` are read. A bare number is minutes for Slurm and seconds for
Grid Engine, and `1:30` is 90 seconds for one and 90 minutes for another: both are refused.
"""

from __future__ import annotations

import re

from kedge.base.patterns import late_pattern
from kedge.errors import InvalidJob

LONGEST = 3650 * 86400  # ten years; more is a typing error
_FORMATS = "write it like 90m, 2h, 1d12h, 2:30:00 or 1-12:00:00"
_UNITS = {"w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
_NAMES = {
    "w": ("w", "week", "weeks"),
    "d": ("d", "day", "days"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "s": ("s", "sec", "secs", "second", "seconds"),
}
_LETTERS = {name: letter for letter, names in _NAMES.items() for name in names}
_PIECE = late_pattern(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?\s*([a-z]+)\s*")
_CLOCK = late_pattern(r"([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,9})")
_DAYS = late_pattern(r"([0-9]{1,9})-([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_ENDLESS = ("unlimited", "infinite", "infinity", "inf", "none")


def parse_duration(text: str) -> int:
    """Seconds; raises InvalidJob with the remedy if the text is no duration or ambiguous."""
    word = text.strip().lower()
    word = "0s" if word == "0" else word
    # patterns are compiled when they are used, and most people write 2h
    clock = _CLOCK.fullmatch(word) if ":" in word else None
    days = _DAYS.fullmatch(word) if "-" in word else None
    if clock:
        seconds = _count_seconds(0, *clock.groups())
    elif days:
        seconds = _count_seconds(*days.groups("0"))
    else:
        seconds = _parse_units(word, text)
    if not 0 < seconds <= LONGEST:
        problem = "is not a time above zero" if seconds <= 0 else "is more than ten years"
        raise InvalidJob(f"'{text}' {problem}", hint="leave it out for the default of the queue")
    return seconds


def _count_seconds(*parts: int | str) -> int:
    days, hours, minutes, seconds = map(int, parts)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _parse_units(word: str, text: str) -> int:
    total, place, last = 0, 0, max(_UNITS.values()) + 1
    while place < len(word):
        piece = _PIECE.match(word, place)
        letter = _LETTERS.get(piece[3]) if piece else None
        if piece is None or letter is None or _UNITS[letter] >= last:
            raise _refuse(word, text)
        last, place = _UNITS[letter], piece.end()
        fraction, remainder = divmod(int(piece[2] or 0) * last, 10 ** len(piece[2] or ""))
        if remainder:
            raise InvalidJob(f"'{text}' is not a whole number of seconds", hint=_FORMATS)
        total += int(piece[1]) * last + fraction
    if not word:
        raise _refuse(word, text)
    return total


def _refuse(word: str, text: str) -> InvalidJob:
    """The error for a text that is no duration, with what the user may have meant."""
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    if re.fullmatch(r"0*[1-9][0-9]{0,11}", word):
        return InvalidJob(
            f"'{word}' has no unit", hint=f"write {word}m for minutes, {word}h for hours or {word}s for seconds"
        )
    two = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", word)
    if two:
        long, short = f"{int(two[1])}h{int(two[2])}m", f"{int(two[1])}m{int(two[2])}s"
        return InvalidJob(
            f"'{shown}' is {short} for some schedulers and {long} for others",
            hint=f"write {long} (or {int(two[1])}:{two[2]:>02}:00), or {short}",
        )
    if word in _ENDLESS:
        return InvalidJob(f"'{shown}' is not a time limit", hint="leave it out for the limit of the queue")
    return InvalidJob(f"'{shown}' is not a duration" if shown.strip() else "the duration is empty", hint=_FORMATS)


def format_duration(seconds: int, *, days: bool = False) -> str:
    """`36:00:00`, which every scheduler reads; with `days` Slurm's `1-12:00:00` where it is a day or more."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    if days and hours >= 24:
        return f"{hours // 24}-{hours % 24:02}:{minute:02}:{second:02}"
    return f"{hours}:{minute:02}:{second:02}"


def shorten_duration(seconds: int) -> str:
    """`1d12h`, `90s`: short, and `parse_duration` reads it back."""
    if seconds < 120:
        return f"{seconds}s"
    text = ""
    for letter in "dhms":
        count, seconds = divmod(seconds, _UNITS[letter])
        text += f"{count}{letter}" if count else ""
    return text
