# SPDX-License-Identifier: BSD-3-Clause
"""Amounts of memory of jobs: `64G`, `512M`, `1.5T`. Always powers of 1024, as in Slurm."""

from __future__ import annotations

import re

from kedge.errors import InvalidJob

_LETTERS = "KMGTP"
_FORMATS = "write it like 512M, 64G or 1.5T"
_AMOUNT = r"([0-9]{1,19})(?:\.([0-9]{1,6}))?\s*(?:([KMGTP])(?:I?B)?|B)"
_LARGEST = 1 << 60


def parse_memory(text: str) -> int:
    """Bytes, rounded up; raises InvalidJob with the remedy. A bare number is ambiguous: megabytes or bytes."""
    word = text.strip()
    match = re.fullmatch(_AMOUNT, word, re.IGNORECASE)
    if match is None:
        raise _refuse(word, text)
    unit = 1 << 10 * (_LETTERS.index(match[3].upper()) + 1) if match[3] else 1
    scale: int = 10 ** len(match[2] or "")
    amount = int(match[1]) * unit - (-int(match[2] or 0) * unit // scale)
    if not 0 < amount <= _LARGEST:
        problem = "is not an amount above zero" if amount <= 0 else "is more than any node has"
        raise InvalidJob(f"'{text}' {problem}", hint=f"leave it out for the default of the queue, or {_FORMATS}")
    return amount


def _refuse(word: str, text: str) -> InvalidJob:
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    if re.fullmatch(r"[0-9]{1,18}", word):
        return InvalidJob(f"'{word}' has no unit", hint=f"write {word}G for gigabytes or {word}M for megabytes")
    return InvalidJob(
        f"'{shown}' is not an amount of memory" if word else "the amount of memory is empty", hint=_FORMATS
    )


def shorten_memory(amount: int) -> str:
    """`64G`, `1536M`: the largest unit that says it exactly; `parse_memory` reads it back."""
    for power in range(len(_LETTERS), 0, -1):
        if amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{_LETTERS[power - 1]}"
    return f"{amount}B"
