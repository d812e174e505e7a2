# SPDX-License-Identifier: BSD-3-Clause
"""What a scheduler gave a job: nodes, with the processes, CPUs and GPUs on each. The same values for all schedulers."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen


@frozen
class AllocatedNode(JsonValue):
    """One node of an allocation."""

    name: str  # as the scheduler writes it
    tasks: int = 1  # processes that the scheduler expects there: Slurm's tasks, Grid Engine's slots, PBS's mpiprocs
    cpus: int = 0  # that the job may use there; 0: unknown
    gpus: int | None = None  # that the job may use there; None: unknown from here, 0: none


@frozen
class Allocation(JsonValue):
    """The nodes of one job, in the order in which ranks are dealt out."""

    scheduler: str  # slurm, gridengine, pbs or local
    nodes: tuple[AllocatedNode, ...]
    job_id: str = ""  # as the scheduler writes it; empty: there is no job
    array_index: str = ""  # of an array's task; empty: it is none
    here: str = ""  # which of the nodes this process is on; empty: none of them, as with salloc on a login node
    step_id: str = ""  # the launch that this process is part of already; empty: none
    step_tasks: int = 0  # how many processes that launch started
    cpus_per_task: int = 0  # as the job asked; 0: it did not
    host_file: str = ""  # the scheduler's own list of nodes, a path
    masks_gpus: bool = False  # the scheduler shows every task GPUs of its own
    notes: tuple[str, ...] = ()  # what a user should know of it: sentences

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def task_count(self) -> int:
        """How many processes the scheduler expects on all nodes."""
        return sum(node.tasks for node in self.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(node.name for node in self.nodes)

    def find_node(self, name: str) -> AllocatedNode | None:
        """The node of that name, with or without its domain; None if it is not among them."""
        short = name.partition(".")[0]
        exact = next((node for node in self.nodes if node.name == name), None)
        return exact or next((node for node in self.nodes if node.name.partition(".")[0] == short), None)


@frozen
class ThisHost:
    """What a process knows of the machine it runs on, where the scheduler does not say."""

    name: str  # uname's
    cpus: int = 1  # that this process may use
    gpus: int = 0  # that it sees
