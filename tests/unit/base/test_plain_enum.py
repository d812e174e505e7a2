# SPDX-License-Identifier: BSD-3-Clause
"""Sets of words: what `enum.StrEnum` does with them, as far as it is used."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from kedge.launch.contracts import Contract


def test_a_word_is_one_value_of_its_class_and_equal_to_its_text() -> None:
    assert Contract("ranks") is Contract.RANKS
    assert Contract(Contract.RANKS) is Contract.RANKS
    assert Contract.RANKS == "ranks"
    assert {Contract.RANKS: 1}["ranks"] == 1
    assert isinstance(Contract.RANKS, Contract)
    assert Contract.RANKS.value == "ranks"


def test_words_are_listed_in_their_order() -> None:
    assert [str(each) for each in Contract][:3] == ["none", "ranks", "torchrun"]
    assert ", ".join(Contract).startswith("none, ranks")


def test_a_word_is_shown_as_its_text() -> None:
    assert f"{Contract.JAX}" == str(Contract.JAX) == "jax"
    assert type(str(Contract.JAX)) is str
    assert json.dumps({"contract": Contract.JAX}) == '{"contract": "jax"}'
    assert repr(Contract.JAX) == "Contract('jax')"


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="'other' is not a valid Contract"):
        Contract("other")


def test_a_copied_word_is_the_same_value() -> None:
    assert copy.deepcopy(Contract.JAX) is Contract.JAX
    assert pickle.loads(pickle.dumps(Contract.JAX)) is Contract.JAX
