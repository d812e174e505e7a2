# SPDX-License-Identifier: BSD-3-Clause
"""The interface for traffic between nodes: InfiniBand, else the one with the route, never a bridge of containers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.interfaces import LinkKind, NetworkInterface, choose_interface
from tests.builders.rows import with_rows

LO = NetworkInterface("lo", LinkKind.LOOPBACK, ("127.0.0.1",))
DOCKER = NetworkInterface("docker0", LinkKind.BRIDGE, ("172.17.0.1",), networks=("172.17.0.0/16",))
VIRBR = NetworkInterface("virbr0", LinkKind.BRIDGE, ("192.168.122.1",), speed=10_000, networks=("192.168.122.0/24",))
SLOW = NetworkInterface("eno1", LinkKind.ETHERNET, ("10.1.0.5",), True, 1000, ("10.1.0.0/16", "0.0.0.0/0"))
FAST = NetworkInterface("ens5f0", LinkKind.ETHERNET, ("10.2.0.5",), True, 100_000, ("10.2.0.0/16",))
IB = NetworkInterface("ib0", LinkKind.INFINIBAND, ("10.3.0.5",), True, 200_000, ("10.3.0.0/16",))
IB_DOWN = NetworkInterface("ib1", LinkKind.INFINIBAND, ("10.4.0.5",), False, 200_000, ("10.4.0.0/16",))
IB_BARE = NetworkInterface("ib2", LinkKind.INFINIBAND, ("fe80::1",), True, 400_000)
ALL = (DOCKER, VIRBR, LO, SLOW, FAST, IB_BARE, IB_DOWN, IB)


@with_rows(
    (ALL, "", "ib0", "InfiniBand, 200 Gbit/s"),
    (ALL, "10.1.0.1", "ib0", "InfiniBand"),
    ((LO, DOCKER, SLOW, FAST), "10.2.0.1", "ens5f0", "the route to the first node (10.2.0.1)"),
    ((LO, DOCKER, SLOW, FAST), "10.1.0.1", "eno1", "the route to the first node"),
    ((LO, DOCKER, SLOW, FAST), "203.0.113.9", "eno1", "the route"),
    ((LO, DOCKER, SLOW, FAST), "", "eno1", "default route"),
    ((LO, DOCKER, FAST), "", "ens5f0", "the only interface"),
    ((LO, DOCKER, FAST), "172.17.0.9", "ens5f0", "the only interface"),
    ((SLOW, FAST), "10.1.0.5", "eno1", "the route to the first node"),
    ((LO, DOCKER, VIRBR, IB_DOWN, IB_BARE), "", "", "no interface"),
    ((), "", "", "no interface"),
    ((SLOW, FAST), "not an address", "eno1", "default route"),
)
def test_interface(interfaces: tuple[NetworkInterface, ...], master: str, name: str, reason: str) -> None:
    found = choose_interface(interfaces, master)
    assert found.name == name
    assert reason in found.reason


def test_interface_of_several_that_are_alike_or_a_bridge() -> None:
    other = NetworkInterface("ens5f1", LinkKind.ETHERNET, ("10.5.0.5",), True, 25_000, ("10.5.0.0/16",))
    assert choose_interface((other, FAST)).name == "ens5f0"
    ports = [NetworkInterface(f"ib{number}", LinkKind.INFINIBAND, (f"10.{number}.0.5",)) for number in (10, 2, 1)]
    assert choose_interface(ports).name == choose_interface(ports[::-1]).name == "ib1"
    # A host that runs virtual machines has its own address on a bridge.
    bridge = NetworkInterface("br0", LinkKind.BRIDGE, ("10.1.0.5",), networks=("10.1.0.0/16",))
    assert choose_interface((LO, bridge, DOCKER), "10.1.0.1").name == "br0"


@given(st.permutations(ALL), st.sampled_from(["", "10.1.0.1", "172.17.0.3", "192.168.122.7", "127.0.0.1", "::1"]))
def test_interface_never_one_that_no_node_answers_on(interfaces: list[NetworkInterface], master: str) -> None:
    assert choose_interface(interfaces, master).name == "ib0"
    rest = [each for each in interfaces if each.kind is not LinkKind.INFINIBAND]
    assert choose_interface(rest, master).name in ("eno1", "ens5f0")
