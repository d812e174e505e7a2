# SPDX-License-Identifier: BSD-3-Clause
"""The table of attacks in docs/threat-model.md, made from the list that the tests prove."""

from __future__ import annotations

from tests.hostile.attacks.attack import COLUMNS, NOT_RUN, OPEN, Attack
from tests.hostile.attacks.attack_list import ATTACKS, STARTS

PAGE = "docs/threat-model.md"
BEGIN = "<!-- attacks: written by scripts/make-threat-table from tests/hostile/attacks/attack_list.py; do not edit -->"
END = "<!-- attacks: end -->"
_DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def make_table() -> str:
    """The table with its notes, between the two marks."""
    attacks = (*ATTACKS, *STARTS)
    reasons = list(dict.fromkeys(each.why for each in attacks if each.why))
    columns = [column if column == "no flag" else f"`{column}`" for column in COLUMNS]
    lines = [BEGIN, "", f"| attack | {' | '.join(columns)} | Apptainer 1.4.5 |", "|---" * (len(columns) + 2) + "|"]
    lines += [_make_row(each, reasons) for each in attacks]
    lines += ["", "Open by design:", ""]
    lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([*lines, "", END])


def _make_row(attack: Attack, reasons: list[str]) -> str:
    mark = str(reasons.index(attack.why) + 1).translate(_DIGITS) if attack.why else ""
    cells = [f"{OPEN} {mark}" if attack.expect(column) == OPEN else attack.expect(column) for column in COLUMNS]
    others = attack.expect_apptainer()
    other = NOT_RUN if set(others) == {NOT_RUN} else others[0] if len(set(others)) == 1 else " / ".join(others)
    return f"| {attack.wants} | {' | '.join(cells)} | {other} |"


def write_into(page: str) -> str:
    """The page with the table as it must be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert before, f"{PAGE} has no place for the table"
    return f"{before}{make_table()}{after}"
