# SPDX-License-Identifier: BSD-3-Clause
"""Where the ranks of a launch meet: an address that every node resolves, and a port that nobody can tell before.

Whether the port is free is found out on the first node, by who starts the launch.
"""

from __future__ import annotations

import os

from kedge.base.frozen import JsonValue, frozen
from kedge.cluster.allocation import Allocation

_FIRST, _COUNT = 20000, 12000  # below the ports that the kernel gives away (32768 and up)
_LAUNCH_STEP = 1531  # between two launches of one job; prime to the count, so that many of them differ


@frozen
class Rendezvous(JsonValue):
    """Where the ranks meet."""

    address: str
    port: int
    id: str  # the name of this launch, for those who ask for one

    @property
    def endpoint(self) -> str:
        """`host:port`; an IPv6 address in brackets."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def choose_rendezvous(allocation: Allocation, launch: int, *, suffix: str = "", attempt: int = 0) -> Rendezvous:
    """The meeting point of a launch, at the `attempt`th port. The numbers of a job's launches begin anywhere.

    `suffix` is put behind the first node's name, where the site says so. On one node it is that node itself.
    """
    port = _FIRST + (_LAUNCH_STEP * launch + 7 * attempt) % _COUNT
    name = ".".join(filter(None, [allocation.job_id or "local", allocation.array_index]))
    return Rendezvous(find_address(allocation, suffix), port, f"kedge-{name}-{os.urandom(8).hex()}")


def find_address(allocation: Allocation, suffix: str = "") -> str:
    """The first node as all nodes know it; on a single one, the loopback address: no name has to be resolved."""
    if allocation.node_count == 1:
        return "127.0.0.1"
    first = allocation.nodes[0].name
    if not suffix or first.endswith(suffix):
        return first
    short, _, domain = first.partition(".")  # a suffix such as -ib belongs to the host's own name
    return first + suffix if suffix.startswith(".") or not domain else f"{short}{suffix}.{domain}"
