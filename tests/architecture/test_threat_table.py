# SPDX-License-Identifier: BSD-3-Clause
"""The table of attacks on the page of threats is the one that the tests prove. Needs nothing."""

from __future__ import annotations

from tests.hostile.attacks.attack import COLUMNS, OPEN, WAYS
from tests.hostile.attacks.attack_list import ATTACKS, STARTS
from tests.hostile.attacks.table import PAGE, write_into
from tests.requirements import REPOSITORY


def test_threat_table_is_the_one_of_the_tests() -> None:
    page = (REPOSITORY / PAGE).read_text()
    assert page == write_into(page), f"{PAGE} differs from the list of attacks: 'make tables' writes it"


def test_threat_table_says_of_each_attack_what_is_expected_and_why() -> None:
    attacks = (*ATTACKS, *STARTS)
    assert len({each.wants for each in attacks}) == len(attacks)
    for each in attacks:
        assert set(each.opens) <= set(WAYS)
        assert bool(each.opens) == bool(each.why), each.wants
        assert len(each.expect_apptainer()) == len(COLUMNS)
        assert each.otherwise != OPEN
    signs = [sign for each in ATTACKS for sign in each.signs]
    assert len(signs) == len(set(signs))
    assert all(each.signs for each in ATTACKS)
