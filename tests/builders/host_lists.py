# SPDX-License-Identifier: BSD-3-Clause
"""Lists of hosts in Slurm's brackets, made at random together with the names that they stand for."""

from __future__ import annotations

from itertools import product
from random import Random

_STEMS = ("n", "gpu", "cn-", "rack1-node", "x", "c", "login-", "NODE_", "a1b", "host.")


def make_host_list(random: Random) -> tuple[str, list[str]]:
    """A list and its names, in its order: up to four words, each with up to two brackets."""
    words, names = [], []
    for _ in range(random.randint(1, 4)):
        word, found = _make_word(random)
        words.append(word)
        names += found
    return ",".join(words), names


def _make_word(random: Random) -> tuple[str, list[str]]:
    text, choices = "", []
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        stem = random.choice(_STEMS)
        ranges, numbers = _make_ranges(random)
        text += f"{stem}[{ranges}]"
        choices.append([stem + number for number in numbers])
    if not choices:
        name = f"{random.choice(_STEMS)}{random.randint(0, 9999)}"
        return name, [name]
    return text, ["".join(each) for each in product(*choices)]


def _make_ranges(random: Random) -> tuple[str, list[str]]:
    parts, numbers = [], []
    for _ in range(random.randint(1, 3)):
        width = random.choice((0, 0, 2, 3, 4))
        first = random.randint(0, 120)
        last = first + random.choice((0, 0, 1, 3, 12))
        span = [f"{number:0{width}}" for number in range(first, last + 1)]
        parts.append(span[0] if last == first else f"{span[0]}-{span[-1]}")
        # a range is as wide as its first number is written: 9-12 is not padded, 09-12 is
        numbers += [str(number).zfill(len(span[0])) for number in range(first, last + 1)]
    return ",".join(parts), numbers
