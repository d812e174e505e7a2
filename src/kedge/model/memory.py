# SPDX-License-Identifier: BSD-3-Clause
"""Amounts of memory as jobs ask for them: `64G`, `512M`, `1.5T`. Powers of 1024 however they are spelt, as in Slurm."""

from __future__ import annotations

import re

from kedge.errors import InvalidJob

_LETTERS = "KMGTP"
_FORMS = "write it like 512M, 64G or 1.5T"
_AMOUNT = r"([0-9]{1,19})(?:\.([0-9]{1,6}))?\s*(?:([KMGTP])(?:I?B)?|B)"
_LARGEST = 1 << 60


def parse_memory(text: str) -> int:
    """Bytes, rounded up; raises InvalidJob with the remedy. A bare number is megabytes to one, bytes to another."""
    word = text.strip()
    found = re.fullmatch(_AMOUNT, word, re.IGNORECASE)
    if found is None:
        raise _refuse(word, text)
    unit = 1 << 10 * (_LETTERS.index(found[3].upper()) + 1) if found[3] else 1
    scale: int = 10 ** len(found[2] or "")
    amount = int(found[1]) * unit - (-int(found[2] or 0) * unit // scale)
    if not 0 < amount <= _LARGEST:
        problem = "is no memory at all" if amount <= 0 else "is more than any node has"
        raise InvalidJob(f"'{text}' {problem}", hint=f"leave it out to get what the queue gives, or {_FORMS}")
    return amount


def _refuse(word: str, text: str) -> InvalidJob:
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    if re.fullmatch(r"[0-9]{1,18}", word):
        return InvalidJob(f"{word} of what?", hint=f"write {word}G for gigabytes or {word}M for megabytes")
    return InvalidJob(f"'{shown}' is no amount of memory" if word else "the amount of memory is empty", hint=_FORMS)


def shorten_memory(amount: int) -> str:
    """`64G`, `1536M`: the largest unit that says it exactly; `parse_memory` reads it back."""
    for power in range(len(_LETTERS), 0, -1):
        if amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{_LETTERS[power - 1]}"
    return f"{amount}B"
