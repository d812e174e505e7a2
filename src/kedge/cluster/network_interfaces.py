# SPDX-License-Identifier: BSD-3-Clause
"""The network interfaces of this node with their addresses and routes, as the kernel's files have them: no socket.

/sys/class/net names them with kind and speed; /proc/net/route and ipv6_route say what each leads to; addresses are in
fib_trie, which does not say whose they are: the route to the network around an address does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_network
from pathlib import Path

from kedge.cluster.interfaces import LinkKind, NetworkInterface

_MOST = 1 << 20  # bytes of a file: a node with every route of the world is no node of a cluster
_KINDS = {"1": LinkKind.ETHERNET, "32": LinkKind.INFINIBAND, "772": LinkKind.LOOPBACK}
_LOCAL = re.compile(r"\|-- ((?:\d{1,3}\.){3}\d{1,3})\n\s+/32 host LOCAL", re.ASCII)
_UP = 1  # IFF_UP


def read_interfaces(root: str = "/") -> tuple[NetworkInterface, ...]:
    """Return all interfaces in the order of their names; what cannot be read is left out."""
    folder = Path(root, "sys/class/net")
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ()
    routes = [*_read_routes(Path(root, "proc/net/route")), *_read_routes6(Path(root, "proc/net/ipv6_route"))]
    addresses = _place_addresses(_read_local(Path(root, "proc/net/fib_trie")), routes)
    addresses += _read_addresses6(Path(root, "proc/net/if_inet6"))
    return tuple(
        NetworkInterface(
            name=name,
            kind=_find_kind(folder / name),
            addresses=tuple(dict.fromkeys(address for each, address in addresses if each == name)),
            is_up=_is_up(folder / name),
            speed=_read_speed(folder / name),
            networks=tuple(dict.fromkeys(network for each, network in routes if each == name)),
        )
        for name in names
    )


def _find_kind(folder: Path) -> LinkKind:
    if (folder / "bridge").is_dir():
        return LinkKind.BRIDGE
    return _KINDS.get(_read_text(folder / "type").strip(), LinkKind.OTHER)


def _is_up(folder: Path) -> bool:
    """Set up, and with a link; drivers of tunnels and some of InfiniBand say `unknown`."""
    flags = _read_text(folder / "flags").strip()
    is_set_up = not re.fullmatch("0x[0-9a-f]+", flags) or bool(int(flags, 16) & _UP)
    return is_set_up and _read_text(folder / "operstate").strip() in ("up", "unknown", "")


def _read_speed(folder: Path) -> int:
    text = _read_text(folder / "speed").strip()
    return int(text) if text.isascii() and text.isdecimal() and int(text) < 1 << 31 else 0  # -1: unknown


def _read_routes(path: Path) -> Iterator[tuple[str, str]]:
    """Interface and network, from lines of hexadecimal numbers in the machine's own order of bytes."""
    for line in _read_text(path).splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and re.fullmatch("[0-9A-F]{8}", words[1]) and re.fullmatch("[0-9A-F]{8}", words[7]):
            address, mask = (IPv4Address(bytes.fromhex(word)[::-1]) for word in (words[1], words[7]))
            yield words[0], str(ip_network(f"{address}/{bin(int(mask)).count('1')}", strict=False))


def _read_routes6(path: Path) -> Iterator[tuple[str, str]]:
    for line in _read_text(path).splitlines():
        words = line.split()
        if len(words) < 10 or not re.fullmatch("[0-9a-f]{32}", words[0]) or not re.fullmatch("[0-9a-f]{2}", words[1]):
            continue
        if words[9] != "lo" and int(words[1], 16) <= 128:
            yield words[9], str(ip_network((IPv6Address(int(words[0], 16)), int(words[1], 16)), strict=False))


def _read_local(path: Path) -> list[str]:
    return list(dict.fromkeys(_LOCAL.findall(_read_text(path))))


def _place_addresses(addresses: list[str], routes: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pair each address with its interface: the one with the closest route to the network around it."""
    placed = []
    networks = [(name, network) for name, text in routes if isinstance(network := ip_network(text), IPv4Network)]
    for text in addresses:
        try:
            address = IPv4Address(text)
        except ValueError:
            continue
        around = [(network.prefixlen, name) for name, network in networks if network.prefixlen and address in network]
        if around:
            placed.append((max(around)[1], text))
    return placed


def _read_addresses6(path: Path) -> list[tuple[str, str]]:
    found = []
    for line in _read_text(path).splitlines():
        words = line.split()
        if len(words) == 6 and re.fullmatch("[0-9a-f]{32}", words[0]):
            found.append((words[5], str(IPv6Address(int(words[0], 16)))))
    return found


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode("ascii", "replace")
    except OSError:  # `speed` of an interface without a link cannot be read
        return ""
