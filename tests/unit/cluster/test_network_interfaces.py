# SPDX-License-Identifier: BSD-3-Clause
"""The interfaces of a node from the kernel's files, in a tree as nodes have them; and those of this machine."""

from __future__ import annotations

import json
import subprocess

import pytest

from kedge.cluster.interfaces import LinkKind, choose_interface
from kedge.cluster.network_interfaces import read_interfaces
from tests.builders.rows import each_row
from tests.requirements import require_program

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
