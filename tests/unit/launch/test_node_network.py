# SPDX-License-Identifier: BSD-3-Clause
"""How ranks reach the first node: by name, by address where the name is unknown, and through which interface."""

from __future__ import annotations

import pytest

from kedge.cluster.interfaces import LinkKind, NetworkInterface
from kedge.cluster.ranks import Rank
from kedge.errors import LaunchRefused
from kedge.launch.node_network import (
    NodeNetwork,
    describe_first_node,
    find_network,
    is_reachable,
    look_up_name,
    require_place,
)
from kedge.launch.order import RankOrder

SLOW = NetworkInterface("eno1", LinkKind.ETHERNET, ("10.1.0.5",), True, 1000, ("10.1.0.0/16", "0.0.0.0/0"))
FAST = NetworkInterface("ens5", LinkKind.ETHERNET, ("fd00::5", "10.2.0.5"), True, 9000, ("10.2.0.0/16",))
SECOND = Rank(1, 2, 0, 1, 1, 2)
DOCKER = NetworkInterface("docker0", LinkKind.BRIDGE, ("172.17.0.1",))


def order(contract: str = "ranks", fallback: str = "10.1.0.4") -> RankOrder:
    return RankOrder(contract, (1, 1), "gpu01", 20001, "kedge-1.0", fallback=fallback)


def find(answer: tuple[str, ...] | None, contract: str = "ranks", fallback: str = "10.1.0.4") -> NodeNetwork:
    return find_network(order(contract, fallback), SECOND, lambda _: answer, lambda: (SLOW, FAST, DOCKER))


def test_network_of_names_and_routes() -> None:
    assert find(("10.2.0.4",)) == NodeNetwork("gpu01", "ens5")
    assert find(("10.1.0.4",)) == NodeNetwork("gpu01", "eno1")
    assert find(("127.0.1.1", "10.2.0.5")) == NodeNetwork("gpu01", "ens5")
    assert find(("127.0.1.1",)) == NodeNetwork("gpu01", "eno1"), "the default route"
    assert find(None, fallback="") == NodeNetwork("gpu01", "eno1")
    assert find((), contract="none", fallback="") == NodeNetwork("gpu01")
    assert find((), contract="horovod", fallback="").interface == "eno1"

    def fail(name: str) -> None:
        raise AssertionError(name)

    assert find_network(order(), Rank(0, 2, 0, 2, 0, 1), fail) == NodeNetwork("gpu01")
    assert find((), fallback="10.2.0.4") == NodeNetwork("10.2.0.4", "ens5")
    with pytest.raises(LaunchRefused, match="does not know gpu01") as caught:
        find((), fallback="")
    assert "address_suffix" in str(caught.value.hint)


def test_names_are_looked_up() -> None:
    assert "127.0.0.1" in (look_up_name("localhost") or ())
    assert look_up_name("no-such-host.invalid") == ()
    assert not is_reachable("127.0.1.1")
    assert not is_reachable("gpu01")
    assert is_reachable("10.0.0.1")
    choice, address = describe_first_node((FAST, DOCKER))
    assert (choice.name, address) == ("ens5", "10.2.0.5")
    assert describe_first_node((DOCKER,))[1] == ""


def test_place_of_a_rank_is_where_it_was_planned() -> None:
    hosts = ("gpu01", "gpu02.site")
    require_place(hosts, SECOND, "gpu02")
    require_place(hosts, SECOND, "vm")
    require_place((), SECOND, "gpu01")
    with pytest.raises(LaunchRefused, match=r"rank 1 on gpu01\.site, and kedge planned it for gpu02\.site"):
        require_place(hosts, SECOND, "gpu01.site")
