# SPDX-License-Identifier: BSD-3-Clause
"""The network of a node as its ranks see it: how they reach the first node, and through which interface.

Each node finds out for itself: interfaces may have other names there, and a name that one node knows another may not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from kedge.base.frozen import frozen
from kedge.cluster.interfaces import InterfaceChoice, NetworkInterface, choose_interface, read_interfaces
from kedge.cluster.ranks import Rank
from kedge.errors import LaunchRefused, ProgramFailed, ProgramMissing
from kedge.launch.contracts import Contract
from kedge.launch.order import RankOrder

_PATIENCE = 10.0  # seconds for a name: name servers give up after five, and then the next is asked
NO_INTERFACE = (InterfaceChoice("", ""), "")
LookUp = Callable[[str], tuple[str, ...] | None]


@frozen
class NodeNetwork:
    """What the ranks of a node are told."""

    address: str  # of the first node
    interface: str = ""  # empty: theirs to choose


def find_network(
    order: RankOrder,
    rank: Rank,
    look_up: LookUp | None = None,
    list_interfaces: Callable[[], Sequence[NetworkInterface]] = read_interfaces,
) -> NodeNetwork:
    """The network on this node; raises LaunchRefused where nobody knows how to reach the first one.

    Nothing is asked for one node, nor for an MPI program, whose launcher tells the ranks.
    """
    contract = Contract(order.contract)
    if rank.node_count == 1 or contract is Contract.NONE:
        return NodeNetwork(order.address)
    require_place(order.hosts, rank, os.uname().nodename)
    found = (look_up or look_up_name)(order.address)
    address = order.address if found or found is None else order.fallback
    if not address and contract is not Contract.HOROVOD:
        raise LaunchRefused(
            f"this node does not know {order.address}, where the ranks meet: no such host name",
            hint="give the suffix that nodes know each other by as address_suffix in the site's profile",
        )
    reachable = next(filter(is_reachable, found or (address,)), "")
    return NodeNetwork(address or order.address, choose_interface(list_interfaces(), reachable).name)


def require_place(hosts: Sequence[str], rank: Rank, host: str) -> None:
    """Refuse if this host is another node of the launch than its rank says: rank 0 would not be where all look for it.

    A launcher may take other nodes of the job when the first ones are busy. Hosts with names of their own pass.
    """
    short = [name.partition(".")[0] for name in hosts]
    name = host.partition(".")[0]
    if 0 <= rank.node_rank < len(short) and name in short and short.index(name) != rank.node_rank:
        raise LaunchRefused(
            f"the launcher started rank {rank.rank} on {host}, and kedge planned it for {hosts[rank.node_rank]}",
            hint="run one launch at a time in a job, or use all its nodes",
        )


def describe_first_node(interfaces: Sequence[NetworkInterface]) -> tuple[InterfaceChoice, str]:
    """On the first node: the interface for traffic between nodes, and its address for those who know no name."""
    choice = choose_interface(interfaces)
    addresses = [address for each in interfaces if each.name == choice.name for address in each.addresses]
    usable = sorted(filter(is_reachable, addresses), key=lambda address: ":" in address)  # Gloo wants IPv4
    return choice, next(iter(usable), "")


def look_up_name(name: str) -> tuple[str, ...] | None:
    """The addresses of a host by all that the node asks (files, name servers, directories); None: cannot be asked."""
    from kedge.system.process import run_program  # late: a launch on one node asks for no name

    try:
        done = run_program(["getent", "ahosts", name], timeout=_PATIENCE, check=False)
    except (ProgramMissing, ProgramFailed):
        return None
    words = [line.split() for line in done.text.splitlines()]
    return tuple(dict.fromkeys(each[0] for each in words if each))


def is_reachable(address: str) -> bool:
    """Whether other nodes can mean this one by it: Debian's own name for itself is 127.0.1.1."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return not (parsed.is_loopback or parsed.is_link_local)
