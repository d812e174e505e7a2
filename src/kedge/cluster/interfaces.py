# SPDX-License-Identifier: BSD-3-Clause
"""Which network interface NCCL and Gloo should talk through, and why: pure, over what `host` found.

Left to themselves, Gloo takes the interface that the host's own name resolves to (on Debian 127.0.1.1) and NCCL the
first that looks fast, which may be a bridge of containers that has the same address on every node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from ipaddress import ip_address, ip_network

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
