# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a launch: what is started where, with which words and variables, and why. Values only.

Every process that a launcher starts is `kedge rank OPTIONS -- exec …`: it learns on its node which rank it is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

from kedge.base.counting import count_things
from kedge.base.frozen import JsonValue, frozen, replace
from kedge.cluster.allocation import AllocatedNode, Allocation
from kedge.cluster.launchers.own import QRSH
from kedge.cluster.launchers.program import LaunchProgram, StartRequest, flatten
from kedge.cluster.ranks import Rank
from kedge.errors import LaunchRefused
from kedge.launch.contracts import Contract
from kedge.launch.order import RankOrder

# How many processes start on which node: from the allocation, and what the user asked for of it.
#
# Ranks are dealt out in blocks: the first node has the first ones. Every launcher of `programs/` is told to do so.


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


CONTAINED = "contained"  # the image's own mpirun, in one container on one node


@frozen
class StartedProcess:
    """One process that the launch itself starts: the launcher, or a node's own start."""

    argv: tuple[str, ...]
    node: int = -1  # the one that it is for; -1: all


@frozen
class LaunchPlan:
    """All that a launch does."""

    launcher: str
    program: LaunchProgram
    shape: LaunchShape
    contract: Contract
    order: RankOrder
    request: StartRequest
    command: tuple[str, ...]  # in the container, of every rank, before the contract's own words
    container: tuple[str, ...]  # exec, its options and the image
    kedge: tuple[str, ...]  # how kedge is started on the nodes
    token: str = ""  # before lines that a rank says to the launch, and not to the user; on no command line
    changes: tuple[tuple[str, str | None], ...] = ()  # variables for the launcher; None: unset
    node_shell: tuple[str, ...] = ()  # the program by which a launcher reaches nodes, and the variable with their list
    reasons: tuple[str, ...] = ()
    mpi_type: str = ""
    mode: str = ""  # hybrid, bind, pmi, contained; empty: no MPI takes part
    has_mpi: bool = False  # the image has one that the world check can ask
    library: str = ""  # its path in the container; empty: the probe looks for it
    warning: str = ""  # what the user must know even if all goes well

    def list_processes(self, command: Sequence[str] | None = None) -> list[StartedProcess]:
        """What to start for this command, else for the launch's own."""
        words = [*self.container, *(self.command if command is None else command)]
        if self.mode == CONTAINED:
            inner = flatten(self.program.list_words(self.request))
            words = [*self.container, *inner, *(self.command if command is None else command)]
            return [StartedProcess((*self.kedge, *words))]
        if self.program.is_own:
            return [self._start_node(index, words) for index in range(self.shape.node_count)]
        starter = flatten(self.program.list_words(self.request))
        said = [self.order.encode(), "--", *words]
        if ":" in words:  # srun, mpirun and mpiexec begin another program there
            said = _pack(said)
        return [StartedProcess((*starter, *self.kedge, "rank", *said))]

    def _start_node(self, index: int, words: Sequence[str]) -> StartedProcess:
        request = replace(self.request, hosts=((self.shape.nodes[index].name, self.shape.tasks[index]),))
        starter = flatten(self.program.list_words(request))
        said = [replace(self.order, node=index).encode(), "--", *words]
        if self.program is QRSH:  # it hands the words to a shell
            said = _pack(said)
        return StartedProcess((*starter, *self.kedge, "rank", *said), index)


def _pack(words: Sequence[str]) -> list[str]:
    """The words as one that means nothing to shells and launchers; `kedge rank` reads it."""
    return ["--packed", base64.urlsafe_b64encode(json.dumps(words).encode()).decode()]
