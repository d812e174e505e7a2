# SPDX-License-Identifier: BSD-3-Clause
"""Measured against expected: what was reached and must not be, and what is said to be open and was not reached."""

from __future__ import annotations

from collections.abc import Mapping

from tests.hostile.attacks.attack import OPEN, Attack
from tests.hostile.attacks.attack_list import ATTACKS
from tests.hostile.attacks.scene import Measured


def list_reached(measured: Mapping[str, Measured], way: str) -> list[str]:
    """Attacks that are to be held and were not, each with what it found."""
    wrong = []
    for each in ATTACKS:
        found = _find(each, measured)
        if found and each.expect(way) != OPEN:
            wrong.append(f"reached: {each.wants} ({len(found)} times): {found[0]}")
    return wrong


def list_missed(measured: Mapping[str, Measured], way: str, baseline: Measured) -> list[str]:
    """Attacks that are said to be open and were not. What this host refuses to anybody shows nothing by failing."""
    return [
        f"not reached: {each.wants}"
        for each in ATTACKS
        if each.expect(way) == OPEN and baseline.signs.intersection(each.signs) and not _find(each, measured)
    ]


def _find(attack: Attack, measured: Mapping[str, Measured]) -> list[str]:
    return [
        f"{name}: {text}"
        for name, one in measured.items()
        for sign in attack.signs
        for text in one.details.get(sign, [])
    ]
