# SPDX-License-Identifier: BSD-3-Clause
"""The profile of a cluster: its queues and nodes, what its scheduler accepts and refuses, where files are."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kedge.base.frozen import frozen


@frozen
class Queue:
    """A partition, queue or resource type; None and empty mean unknown: kedge then checks nothing against it."""

    name: str
    title: str = ""
    is_default: bool = False
    nodes: int | None = None  # how many there are
    cpus_per_node: int | None = None
    memory_per_node: int | None = None  # bytes a job may use
    gpus_per_node: int | None = None  # 0: none
    gpu: str = ""  # `A100-SXM4-40GB`; what explain looks up
    gpu_type: str = ""  # the scheduler's word for it, as in gpu:a100:4
    gpu_types: tuple[str, ...] = ()  # the scheduler's words where there are several, in gpu_type's place
    driver: str = ""  # of the nodes' GPUs, 535.104.05, where the site's documents state it; what explain judges by
    arch: str = ""  # amd64, arm64
    local_disk: int | None = None  # bytes
    min_nodes: int | None = None
    max_nodes: int | None = None
    max_gpus: int | None = None  # of one job
    max_time: int | None = None  # seconds
    max_interactive_time: int | None = None
    max_interactive_nodes: int | None = None
    default_time: int | None = None
    is_whole_node: bool = False  # nodes are not shared, and their GPUs come unasked
    is_interactive: bool = True
    needs_gpus: bool = False  # a job without GPUs stays pending for ever
    resource: str = ""  # Grid Engine: the resource type written as -l RESOURCE=NODES
    parallel_environment: str = ""  # Grid Engine: the PE, `{tasks}` is put in: `mpi-{tasks}`
    is_retired: bool = False  # switched off; kept because documents still name it
    note: str = ""

    @property
    def known_gpu_types(self) -> tuple[str, ...]:
        """The scheduler's words for its GPUs; none if they are unknown."""
        return self.gpu_types or ((self.gpu_type,) if self.gpu_type else ())

    def spell_gpu_type(self, word: str) -> str:
        """A type as the scheduler writes it: `a100` for `A100`; any other word as it is."""
        return next((name for name in self.known_gpu_types if name.lower() == word.lower()), word)

    @property
    def gives_gpus_unasked(self) -> bool:
        """Whether jobs get whole nodes with their GPUs without asking for them."""
        return self.is_whole_node and bool(self.gpus_per_node)


@frozen
class Site:
    """One profile; every field has a neutral default, so a profile states only what differs."""

    name: str
    title: str
    scheduler: str  # slurm, gridengine, pbs or local
    # how kedge recognises the site
    hostnames: tuple[str, ...] = ()  # regular expressions for the whole host name
    variables: tuple[tuple[str, str], ...] = ()  # variables and the regular expression of their value
    queues: tuple[Queue, ...] = ()
    # what jobs must and may ask for, and in which words
    account: str = ""  # charged for jobs that name no account
    account_option: str = ""  # -A, -P, -g; empty: the scheduler's usual one
    account_on_command_line: bool = False  # only there, never in the script (ABCI's -g)
    requires: tuple[str, ...] = ()  # of: account, queue, time, nodes, tasks, memory
    refuses: tuple[str, ...] = ()  # of: memory, gpus, arrays, export, exclusive, nodelist
    gpu_directive: str | None = None  # with {count} and {type}; "" none at all, None the scheduler's usual one
    memory_directive: str | None = None  # with {size}; "" none at all, None the usual one
    default_memory_per_cpu: int | None = None  # bytes; what a job gets if it asks for none
    directives: tuple[str, ...] = ()  # always added
    drop_directives: tuple[str, ...] = ()  # never written
    options: tuple[tuple[str, str], ...] = ()  # understood by one backend only; its module lists them
    # what the job does before the user's command
    module_setup: tuple[str, ...] = ()  # lines that make `module` work
    modules: tuple[str, ...] = ()
    runtime_modules: tuple[str, ...] = ()  # for apptainer or singularity, when they are what runs
    environment: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    binds: tuple[str, ...] = ()
    # how ranks are started
    launcher: str = ""  # srun, mpirun, mpiexec, ibrun; empty: the scheduler's usual one
    launcher_options: tuple[str, ...] = ()
    mpi_type: str = ""  # srun's --mpi
    interactive: str = ""  # srun, salloc, qrsh, qsub, idev; empty: the scheduler's usual one
    interactive_queue: str = ""
    address_suffix: str = ""  # put behind host names to reach the fast network
    # where files are; $VARIABLES are the shell's
    runtime: str = ""  # empty: kedge itself
    home_on_nodes: bool = True
    scratch: str = ""  # seen by login and compute nodes
    image_directory: str = ""  # where pulled images go; empty: below scratch, or with the user's data
    node_directory: str = ""  # a local disk of the node
    hidden_paths: tuple[str, ...] = ()  # directories that compute nodes do not see
    pull: str = "now"  # or in-job: the login node must not
    pull_reason: str = ""
    internet_on_nodes: bool | None = None
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()  # where the figures are from
    origin: str = ""  # the file this was read from

    def find_queue(self, name: str) -> Queue | None:
        """The queue of that name."""
        return next((queue for queue in self.queues if queue.name == name), None)

    @property
    def default_queue(self) -> Queue | None:
        """The queue of jobs that name none."""
        return next((queue for queue in self.queues if queue.is_default), None)

    def option(self, name: str, default: str = "") -> str:
        """A backend's own option."""
        return dict(self.options).get(name, default)


def expand_path(text: str, environ: Mapping[str, str]) -> str:
    """A profile's path with its $VARIABLES; empty when one of them is not set."""
    if "$" not in text:
        return text
    pattern = r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?"
    if not all(environ.get(name) for name in re.findall(pattern, text)):
        return ""
    return re.sub(pattern, lambda match: environ[match[1]], text)
