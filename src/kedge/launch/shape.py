# SPDX-License-Identifier: BSD-3-Clause
"""How many processes start on which node: from the allocation, and what the user asked for of it.

Ranks are dealt out in blocks: the first node has the first ones. Every launcher of `programs/` is told to do so.
"""

from __future__ import annotations

from collections.abc import Iterator

from kedge.base.counting import count_things
from kedge.base.frozen import JsonValue, frozen
from kedge.cluster.allocation import AllocatedNode, Allocation
from kedge.cluster.ranks import Rank
from kedge.errors import LaunchRefused


@frozen
class LaunchShape(JsonValue):
    """The nodes of a launch, and the processes on each: `nodes` and `tasks` go together."""

    nodes: tuple[AllocatedNode, ...]
    tasks: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of all processes."""
        return sum(self.tasks)

    @property
    def node_count(self) -> int:
        """The nodes that have any."""
        return len(self.nodes)

    @property
    def per_node(self) -> int:
        """The processes of each node; 0 where nodes differ."""
        return self.tasks[0] if len(set(self.tasks)) == 1 else 0

    def list_ranks(self) -> Iterator[Rank]:
        """Every rank, in order."""
        first = 0
        for index, count in enumerate(self.tasks):
            for local in range(count):
                yield Rank(
                    first + local,
                    size=self.size,
                    local_rank=local,
                    local_size=count,
                    node_rank=index,
                    node_count=self.node_count,
                )
            first += count


def choose_shape(
    allocation: Allocation, *, nodes: int = 0, tasks: int = 0, tasks_per_node: int = 0, usual: int = 0
) -> LaunchShape:
    """The shape that was asked for; 0: the user did not say.

    `usual` is how many processes a node gets where neither number is given; 0: as many as the scheduler expects there.
    Raises LaunchRefused where the allocation has not enough nodes, or the numbers contradict each other.
    """
    if nodes > allocation.node_count:
        raise LaunchRefused(
            f"the job has {count_things(allocation.node_count, 'node')}, not {nodes}",
            context={"nodes": ", ".join(allocation.names[:8])},
            hint=f"leave out --nodes, or ask for a job with --nodes {nodes}",
        )
    chosen = allocation.nodes[: nodes or allocation.node_count]
    if tasks and tasks_per_node and tasks != tasks_per_node * len(chosen):
        raise LaunchRefused(
            f"{tasks} tasks are not {tasks_per_node} on each of {count_things(len(chosen), 'node')}",
            hint="give only one of --tasks and --tasks-per-node",
        )
    if tasks_per_node:
        return LaunchShape(chosen, (tasks_per_node,) * len(chosen))
    if tasks:
        return _deal(chosen, tasks)
    return LaunchShape(chosen, tuple(usual or node.tasks for node in chosen))


def _deal(nodes: tuple[AllocatedNode, ...], tasks: int) -> LaunchShape:
    """Deal tasks as evenly as the room on the nodes allows, the first nodes getting more, as Slurm does."""
    used = nodes[:tasks]
    fits = sum(node.tasks for node in used) >= tasks
    counts: list[int] = []
    for index, node in enumerate(used):
        share = -(-(tasks - sum(counts)) // (len(used) - index))
        counts.append(min(share, node.tasks) if fits else share)
    for index, node in enumerate(used):  # what later nodes had no room for
        counts[index] += max(0, min(node.tasks - counts[index], tasks - sum(counts)))
    return LaunchShape(used, tuple(counts))
