# SPDX-License-Identifier: BSD-3-Clause
"""Frozen values and sets of words: made, compared, shown, copied, and never changed."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from kedge.api import BuildOptions
from kedge.base.digest import Digest
from kedge.base.frozen import NOTHING, JsonValue, as_dict, fresh, frozen, list_defaults, list_names, replace
from kedge.cluster.job import Job
from kedge.launch.contracts import Contract
from tests.builders.rows import each_row


@frozen
class Point:
    """Two numbers and a name."""

    x: int
    y: int = 2
    name: str = ""

    @property
    def sum(self) -> int:
        return self.x + self.y


@frozen
class Line:
    """Values within a value."""

    points: tuple[Point, ...]


def test_frozen_values_are_made_by_place_and_equal_by_content() -> None:
    assert (Point(1).y, Point(1, 5).y, Point(x=1, name="a").name) == (2, 5, "a")
    assert Point(1, 5).sum == 6
    assert Point.__doc__ == "Two numbers and a name."
    assert Point(1) == Point(1, 2)
    assert Point(1) != Point(2)
    assert Point(1) != (1, 2, "")
    assert len({Point(1), Point(1), Point(2)}) == 2
    assert repr(Point(1, name="a")) == "Point(x=1, y=2, name='a')"
    job = Job(command=("true",), time=60)
    assert pickle.loads(pickle.dumps(job)) == job
    assert copy.deepcopy(job) == job


@each_row("wrong", [((), {}), ((1, 2, "", 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"z": 1})])
def test_frozen_refuses_what_does_not_fit(wrong: tuple[tuple[object, ...], dict[str, object]]) -> None:
    with pytest.raises(TypeError, match="Point takes x, y, name"):
        Point(*wrong[0], **wrong[1])  # type: ignore[arg-type]


def test_frozen_values_do_not_change() -> None:
    point = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: setattr(point, "other", 2), lambda: delattr(point, "x")):
        with pytest.raises(AttributeError, match="cannot be changed"):
            change()
    assert not hasattr(point, "__dict__")
    assert replace(point, y=7) == Point(1, 7)
    with pytest.raises(TypeError):
        replace(point, z=7)
    options = replace(BuildOptions(target="small"), nv=True)
    assert (options.target, options.nv) == ("small", True)


def test_frozen_defaults_that_may_change_are_not_shared() -> None:
    @frozen
    class Sheet:
        name: str
        cells: dict[str, int] = fresh(dict)

    first, second = Sheet("a"), Sheet("a")
    first.cells["x"] = 1
    assert (second.cells, first == second, Sheet("a", {"x": 1}) == first) == ({}, False, True)
    given: dict[str, int] = {}
    assert replace(first, cells=given).cells is given


def test_frozen_values_as_names_and_json() -> None:
    assert list_names(Point) == ("x", "y", "name")
    assert list_defaults(Point) == {"y": 2, "name": ""}
    assert as_dict(Line((Point(1),))) == {"points": [{"x": 1, "y": 2, "name": ""}]}
    assert not NOTHING

    @frozen
    class Sent(JsonValue):
        digest: Digest

    digest = Digest.of(b"")
    assert Sent(digest).as_dict() == {"digest": str(digest)}


def test_words_are_texts_of_their_class() -> None:
    assert Contract("ranks") is Contract.RANKS
    assert Contract(Contract.RANKS) is Contract.RANKS
    assert Contract.RANKS == "ranks"
    assert {Contract.RANKS: 1}["ranks"] == 1
    assert isinstance(Contract.RANKS, Contract)
    assert Contract.RANKS.value == "ranks"
    assert [str(each) for each in Contract][:3] == ["none", "ranks", "torchrun"]
    assert ", ".join(Contract).startswith("none, ranks")
    assert f"{Contract.JAX}" == str(Contract.JAX) == "jax"
    assert type(str(Contract.JAX)) is str
    assert json.dumps({"contract": Contract.JAX}) == '{"contract": "jax"}'
    assert repr(Contract.JAX) == "Contract('jax')"
    with pytest.raises(ValueError, match="'other' is not a valid Contract"):
        Contract("other")
    assert copy.deepcopy(Contract.JAX) is Contract.JAX
    assert pickle.loads(pickle.dumps(Contract.JAX)) is Contract.JAX
