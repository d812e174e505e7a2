# SPDX-License-Identifier: BSD-3-Clause
"""The word that tells a rank what it is: there and back, and what is no such word."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.errors import LaunchRefused
from kedge.launch.contracts import Rendezvous, Terms
from kedge.launch.order import RankOrder
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY
from tests.wording import assert_begins, assert_reads

ORDER = RankOrder(
    "ranks", (2, 2), "nöde-1", 29500, 'a"\\\n', hosts=("n1", "n2"), cpus=(8, 8), is_checked=False, node=-1
)


def test_an_order_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RankOrder.decode(ORDER.encode()) == ORDER
    for text in (f"{ORDER.encode()} ", f"{ORDER.encode()}{{}}", f" {ORDER.encode()}"):
        with pytest.raises(LaunchRefused, match="cannot read"):
            RankOrder.decode(text)
    monkeypatch.setitem(sys.modules, "_json", None)  # without the parser in C
    assert RankOrder.decode(ORDER.encode()) == ORDER


def test_an_order_has_the_terms_of_each_node_and_nothing_else() -> None:
    order = replace(ORDER, cpus=(8, 4), processes=(2, 3), interface="ib0", restarts=5, least_nodes=1)
    first, second, beyond = (order.terms_on(node, {"A": "1"}) for node in (0, 1, 2))
    assert [(each.cpus, each.processes) for each in (first, second, beyond)] == [(8, 2), (4, 3), (0, 1)]
    assert order.terms_on(-1).cpus == 0
    assert first.hosts == ("n1", "n1", "n2", "n2")
    assert (first.interface, first.restarts, first.least_nodes, first.environ) == ("ib0", 5, 1, {"A": "1"})
    assert first.rendezvous.endpoint == "nöde-1:29500"
    least = RankOrder("torchrun", (1, 1), "n1", 29500, "id")
    assert least == RankOrder(
        *("torchrun", (1, 1), "n1", 29500, "id", (), (), ("torchrun",), (), ()),
        *(True, "", "", 0, 0, "", "", -1, False, 0),
    )
    assert least.terms_on(1) == Terms(
        Rendezvous("n1", 29500, "id"), cpus=0, processes=1, starter=("torchrun",), least_nodes=0, restarts=0, hosts=()
    )


@each_row("text", ["", "{", "[1]", "7", '{"layout":1}', "{} {}", '{"a":NaN}', "nonsense", '{"contract":"x\n"}', " {}"])
def test_what_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(LaunchRefused, match="cannot read"):
        RankOrder.decode(text)


def rewrite(**changes: object) -> str:
    """The order with some fields changed; None leaves one out."""
    document = {**json.loads(ORDER.encode()), **changes}
    return json.dumps({name: value for name, value in document.items() if value is not None})


@each_row(("changes", "what"), [
    ({"kedge": "9.1", "colour": "red"}, "this node's does not know 'colour'"),
    ({"kedge": "9.1", "contract": "telepathy"}, "this node's does not know the contract 'telepathy'"),
    ({"kedge": "9.1", "contract": "a\n\x1b[31m" + "b" * 99}, "contract 'a??[31mbbb"),
])  # fmt: skip
def test_an_order_of_a_newer_kedge_says_to_update_the_node(changes: dict[str, object], what: str) -> None:
    host = os.uname().nodename
    with pytest.raises(LaunchRefused) as refusal:
        RankOrder.decode(rewrite(**changes))
    assert f"kedge on {host} is another version than the kedge that started the launch" in refusal.value.message
    assert what in refusal.value.message
    assert refusal.value.context == {"kedge launch": "9.1", f"kedge on {host}": VERSION}
    assert_reads(refusal.value.hint, "launch/update-version-runs-launch", host, "9.1")


def test_an_order_of_an_older_kedge_says_to_update_the_launch() -> None:
    host = os.uname().nodename
    with pytest.raises(LaunchRefused, match="the order lacks 'port'") as refusal:
        RankOrder.decode(rewrite(kedge=None, port=None))
    assert refusal.value.context["kedge launch"] == "unknown"
    assert_reads(refusal.value.hint, "launch/update-runs-launch-version", host, VERSION)


@each_row("changes", [
    {"contract": ["ranks"]}, {"layout": 2}, {"layout": ["2", 2]}, {"port": "29500"}, {"is_checked": 1}, {"node": "a"},
    {"node": 2}, {"hosts": [1, 2]}, {"address": {}},
])  # fmt: skip
def test_values_of_another_kind_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(LaunchRefused, match="do not fit") as refusal:
        RankOrder.decode(rewrite(**changes))
    assert_begins(str(refusal.value.hint), "launch/install-same-version")


def test_reading_an_order_loads_no_patterns_and_no_enum() -> None:
    """Each rank pays for it, and there are many."""
    code = (
        "import sys; from kedge.launch.order import RankOrder; import kedge.launch.become_rank\n"
        "RankOrder.decode(sys.argv[1])\n"
        "print(*({'re', 'enum', 'json', 'collections', 'functools', 'typing', 'kedge.errors'} & {*sys.modules}))"
    )
    words = [sys.executable, "-S", "-c", code, ORDER.encode()]
    environment = {"PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == []
