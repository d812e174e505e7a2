# SPDX-License-Identifier: BSD-3-Clause
"""Where the ranks of a launch meet: an address that every node resolves, and a port that other jobs hardly use.

Whether the port is free is found out on the first node, by who starts the launch.
"""

from __future__ import annotations

from kedge.frozen import JsonValue, frozen
from kedge.model.allocation import Allocation

_FIRST, _COUNT = 20000, 12000  # below the ports that the kernel gives away (32768 and up)
_INDEX_STEP = 131  # between two tasks of an array that share an id: job 100's task 2 is not job 101's task 1
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


def choose_rendezvous(
    allocation: Allocation, *, suffix: str = "", launch: int = 0, attempt: int = 0, process: int = 0
) -> Rendezvous:
    """The meeting point of the job's `launch`th launch, at the `attempt`th port; `process` tells apart what has no job.

    `suffix` is put behind the first node's name, where the site says so. On one node it is that node itself.
    """
    number = _unique_number(allocation) or process
    port = _FIRST + (number + _LAUNCH_STEP * launch + 7 * attempt) % _COUNT
    name = ".".join(filter(None, [allocation.job_id or f"local{process}", allocation.array_index, str(launch)]))
    return Rendezvous(find_address(allocation, suffix), port, f"kedge-{name}")


def find_address(allocation: Allocation, suffix: str = "") -> str:
    """The first node as all nodes know it; on a single one, the loopback address: no name has to be resolved."""
    if allocation.node_count == 1:
        return "127.0.0.1"
    first = allocation.nodes[0].name
    if not suffix or first.endswith(suffix):
        return first
    short, _, domain = first.partition(".")  # a suffix such as -ib belongs to the host's own name
    return first + suffix if suffix.startswith(".") or not domain else f"{short}{suffix}.{domain}"


def _unique_number(allocation: Allocation) -> int:
    """A number that jobs running at the same time do not share, nor tasks of one array."""
    import re  # late: only who plans a launch numbers it

    digits = re.match(r"[0-9]+", allocation.job_id)
    number = int(digits[0][-9:]) if digits else 0
    index = allocation.array_index
    if number and index.isdecimal() and not allocation.has_id_per_task:
        number += _INDEX_STEP * int(index[-9:])
    return number
