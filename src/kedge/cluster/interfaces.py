# SPDX-License-Identifier: BSD-3-Clause
"""Which network interface NCCL and Gloo should talk through, and why: pure, over what `host` found.

Left to themselves, Gloo takes the interface that the host's own name resolves to (on Debian 127.0.1.1) and NCCL the
first that looks fast, which may be a bridge of containers that has the same address on every node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network
from pathlib import Path

from kedge.base.frozen import JsonValue, frozen

# Bridges and tunnels of virtual machines, containers and private networks: no other node answers there
_NEVER = re.compile(
    r"lo\d*|docker.*|br-.*|virbr.*|veth.*|cni.*|flannel.*|cali.*|podman.*|lxc.*|lxd.*|vnet.*|tap.*|tun.*|wg\d.*|kube-.*"
    r"|dummy.*|sit\d.*|ip6tnl.*|gre.*|nodelocaldns|cilium.*|vmnet.*|tailscale.*|usb\d.*|idrac|enx.*"
)
_MOST = 4096  # interfaces and routes that are looked at: a node has tens


class LinkKind(StrEnum):
    """What an interface is, as the kernel says."""

    INFINIBAND = "infiniband"  # IP over InfiniBand, or Omni-Path
    ETHERNET = "ethernet"
    LOOPBACK = "loopback"
    BRIDGE = "bridge"
    OTHER = "other"


@frozen
class NetworkInterface(JsonValue):
    """One interface of a node."""

    name: str
    kind: LinkKind
    addresses: tuple[str, ...] = ()
    is_up: bool = True
    speed: int = 0  # Mbit/s; 0: it does not say
    networks: tuple[str, ...] = ()  # that it has routes to: 10.0.0.0/8, 0.0.0.0/0


@frozen
class InterfaceChoice(JsonValue):
    """An interface and the reason, or no name and why kedge chooses none."""

    name: str
    reason: str


def choose_interface(interfaces: Sequence[NetworkInterface], master: str = "") -> InterfaceChoice:
    """The interface for the traffic between nodes. `master`: the address of the first node, if it was resolved."""
    usable = [each for each in interfaces[:_MOST] if _is_usable(each)]
    if not usable:
        return InterfaceChoice("", "no interface of this node has an address that other nodes can reach")
    fabric = [each for each in usable if each.kind is LinkKind.INFINIBAND]
    if fabric:
        best = _best(fabric, master)
        return InterfaceChoice(best.name, f"{best.name} is InfiniBand{_say_speed(best)}")
    if master and (length := max(_route_lengths(usable, master), default=-1)) >= 0:
        best = _best([each for each in usable if _route_length(each, master) == length], "")
        return InterfaceChoice(best.name, f"{best.name} has the route to the first node ({master})")
    if len(usable) == 1:
        return InterfaceChoice(usable[0].name, f"{usable[0].name} is the only interface to other nodes")
    best = _best(usable, master)
    if any("0.0.0.0/0" in each.networks for each in usable):
        usable = [each for each in usable if "0.0.0.0/0" in each.networks]
        best = _best(usable, "")
        return InterfaceChoice(best.name, f"{best.name} has the default route")
    return InterfaceChoice(best.name, f"{best.name} is the fastest{_say_speed(best)}")


def _is_usable(each: NetworkInterface) -> bool:
    is_wrong_kind = each.kind is LinkKind.LOOPBACK or _NEVER.fullmatch(each.name)
    return each.is_up and not is_wrong_kind and any(map(_is_reachable, each.addresses))


def _is_reachable(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return not (parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified)


def _best(candidates: Sequence[NetworkInterface], master: str) -> NetworkInterface:
    """The one with the route, then the fastest, then the first by name: the same on nodes that are alike."""
    return min(candidates, key=lambda each: (-_route_length(each, master), -each.speed, _natural(each.name)))


def _natural(name: str) -> tuple[str, int, str]:
    """ib2 before ib10."""
    letters = name.rstrip("0123456789")
    digits = name[len(letters) :][:9]
    return letters, int(digits or 0), name


def _route_lengths(candidates: Sequence[NetworkInterface], master: str) -> Iterator[int]:
    return (_route_length(each, master) for each in candidates)


def _route_length(each: NetworkInterface, master: str) -> int:
    """How closely its routes name the address: bits of the longest that holds it; -1: none does."""
    try:
        address = ip_address(master)
    except ValueError:
        return -1
    if master in each.addresses:  # this is the first node itself
        return address.max_prefixlen
    lengths = [-1]
    for text in each.networks[:_MOST]:
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            continue
        if network.version == address.version and address in network:
            lengths.append(network.prefixlen)
    return max(lengths)


def _say_speed(each: NetworkInterface) -> str:
    return f", {each.speed // 1000} Gbit/s" if each.speed >= 1000 else ""


# The network interfaces of this node with their addresses and routes, as the kernel's files have them: no socket.
#
# /sys/class/net names them with kind and speed; /proc/net/route and ipv6_route say what each leads to; addresses are in
# fib_trie, which does not say whose they are: the route to the network around an address does.

_MOST_INTERFACES = 1 << 20  # bytes of a file: a node with every route of the world is no node of a cluster
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
            return file.read(_MOST_INTERFACES).decode("ascii", "replace")
    except OSError:  # `speed` of an interface without a link cannot be read
        return ""
