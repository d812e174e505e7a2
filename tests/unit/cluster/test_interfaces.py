# SPDX-License-Identifier: BSD-3-Clause
"""The interface for traffic between nodes, never a bridge of containers; and the interfaces in the kernel's files."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.interfaces import LinkKind, NetworkInterface, choose_interface, read_interfaces
from tests.builders.rows import each_row, with_rows
from tests.requirements import require_program

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


ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eno1	00000000	0100010A	0003	0	0	100	00000000	0	0	0
eno1	0000010A	00000000	0001	0	0	100	0000FFFF	0	0	0
ib0	0000030A	00000000	0001	0	0	0	0000FFFF	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
broken line
"""
TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
Local:
  +-- 10.0.0.0/8 2 0 2
     |-- 10.1.0.5
        /32 host LOCAL
     |-- 10.1.255.255
        /32 link BROADCAST
     |-- 10.3.0.5
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 172.17.0.1
        /32 host LOCAL
"""
ROUTES6 = (
    "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000001 00000000 00000001     eno1\n"
)
ADDRESSES6 = (
    "fd000000000000000000000000000005 02 40 00 80     eno1\n00000000000000000000000000000001 01 80 10 80       lo\n"
)


@pytest.fixture
def node(tmp_path):
    links = {
        **{"lo": "772 unknown 0x9", "eno1": "1 up 0x1003 1000", "ib0": "32 up 0x1003 200000"},
        "docker0": "1 down 0x1003",
    }
    for name, text in links.items():
        folder = tmp_path / "sys/class/net" / name
        folder.mkdir(parents=True)
        for file, word in zip(("type", "operstate", "flags", "speed"), text.split(), strict=False):
            (folder / file).write_text(f"{word}\n")
    (tmp_path / "sys/class/net/docker0/bridge").mkdir()
    proc = tmp_path / "proc/net"
    proc.mkdir(parents=True)
    for file, text in {"route": ROUTES, "fib_trie": TRIE, "ipv6_route": ROUTES6, "if_inet6": ADDRESSES6}.items():
        (proc / file).write_text(text)
    return tmp_path


def test_interfaces_of_a_node(node) -> None:
    found = {each.name: each for each in read_interfaces(str(node))}
    assert list(found) == ["docker0", "eno1", "ib0", "lo"]
    assert found["ib0"].kind is LinkKind.INFINIBAND
    assert (found["ib0"].addresses, found["ib0"].speed, found["ib0"].networks) == (
        ("10.3.0.5",),
        200_000,
        ("10.3.0.0/16",),
    )
    assert found["eno1"].addresses == ("10.1.0.5", "fd00::5")
    assert found["eno1"].networks == ("0.0.0.0/0", "10.1.0.0/16", "fd00::/64")
    assert found["docker0"].kind is LinkKind.BRIDGE
    assert not found["docker0"].is_up
    assert found["lo"].kind is LinkKind.LOOPBACK
    assert choose_interface(tuple(found.values())).name == "ib0"


def test_interfaces_without_their_files(tmp_path, node) -> None:
    assert read_interfaces(str(tmp_path / "nowhere")) == ()
    for name in ("route", "fib_trie", "ipv6_route", "if_inet6"):
        (node / "proc/net" / name).unlink()
    assert [each.addresses for each in read_interfaces(str(node))] == [(), (), (), ()]


@each_row("text", ["\0\xff" * 999, "eno1 " * 99, "|-- x\n /32 host LOCAL", "z" * 32 + " 40 a b c d e f g eno1"])
def test_interfaces_files_with_nonsense(node, text: str) -> None:
    for name in ("route", "fib_trie", "ipv6_route", "if_inet6"):
        (node / "proc/net" / name).write_text(text)
    assert len(read_interfaces(str(node))) == 4


def test_interfaces_of_this_machine_as_ip_prints_them() -> None:
    words = [require_program("ip"), "-json", "-4", "address"]
    shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    wanted = {each["ifname"]: {address["local"] for address in each["addr_info"]} for each in shown}
    found = {each.name: {text for text in each.addresses if ":" not in text} for each in read_interfaces()}
    for name, addresses in wanted.items():
        if name != "lo" and "@" not in name:
            assert found[name] == addresses
