# SPDX-License-Identifier: BSD-3-Clause
"""What programs expect of whoever starts them: the variables of every rank, and the words around the command.

A contract is what one family of programs documents. The numbers of a rank replace whatever was set before: a
WORLD_SIZE that leaks in from a job script makes a training hang at its first collective. What is a matter of taste
(threads, interfaces) stays as the user set it.
"""

from __future__ import annotations

import os

from kedge.base.counting import count_things
from kedge.base.frozen import NOTHING, JsonValue, frozen
from kedge.base.plain_enum import PlainEnum
from kedge.cluster.allocation import Allocation
from kedge.cluster.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Where the ranks of a launch meet: an address that every node resolves, and a port that nobody can tell before.
#
# Whether the port is free is found out on the first node, by who starts the launch.

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


Variables = dict[str, str | None]  # None: to unset


class Contract(PlainEnum):
    """What the program expects."""

    NONE = "none"  # nothing but its launcher's own variables: MPI programs
    RANKS = "ranks"  # torch.distributed's env:// without torchrun, one process per GPU
    TORCHRUN = "torchrun"  # one torchrun per node, which starts the processes; a fixed number of nodes
    ELASTIC = "elastic"  # likewise, by the c10d rendezvous: nodes may come and go
    MULTIPROC = "multiproc"  # one multiproc.py or torch.distributed.launch per node, with torchrun's old options
    LIGHTNING = "lightning"
    HOROVOD = "horovod"  # over MPI
    JAX = "jax"
    DEEPSPEED = "deepspeed"
    TENSORFLOW = "tensorflow"  # MultiWorkerMirroredStrategy


@frozen
class Terms:
    """What all ranks of a launch share, and the part of this rank's node."""

    rendezvous: Rendezvous
    cpus: int = 0  # of this task, which may be all of its node; 0: unknown
    processes: int = 1  # that torchrun starts on this node: one per GPU
    starter: tuple[str, ...] = ("torchrun",)  # the words of torchrun, or of what an older PyTorch has instead
    least_nodes: int = 0  # elastic: as few as this are enough; 0: all
    restarts: int = 0  # elastic: how often failed processes start again
    hosts: tuple[str, ...] = ()  # the node of each rank, for TF_CONFIG
    interface: str = ""  # for NCCL and Gloo; empty: theirs to choose
    environ: Mapping[str, str] = NOTHING  # what is set already


def starts_one_per_node(contract: Contract) -> bool:
    """Whether the launcher starts one task per node, and the program starts the processes of its node."""
    return contract in _STARTERS


def name_task(contract: Contract, rank: int) -> str:
    """What to call a task: its rank, or the program that starts the ranks of its node."""
    return _STARTERS.get(contract) or f"rank {rank}"


def needs_mpi(contract: Contract) -> bool:
    """Whether the ranks find each other by MPI: then its launcher and its kind of PMI matter."""
    return contract in (Contract.NONE, Contract.HOROVOD)


def rank_variables(contract: Contract, rank: Rank, terms: Terms) -> Variables:
    """What to set for this rank, and with None to unset."""
    return _WRITERS[contract](rank, terms) | _write_preferences(contract, rank, terms)


def rank_command(contract: Contract, rank: Rank, terms: Terms, command: Sequence[str]) -> tuple[str, ...]:
    """The words to run in the container for this rank."""
    if contract is Contract.TORCHRUN:
        return (*terms.starter, *_static_options(rank, terms), *command)
    if contract is Contract.ELASTIC:
        return (*terms.starter, *_elastic_options(rank, terms), *command)
    if contract is Contract.MULTIPROC:
        place = _find_starter(command)
        return (*command[:place], *_static_options(rank, terms), *command[place:])
    return tuple(command)


def check_command(contract: Contract, command: Sequence[str]) -> None:
    """Raises LaunchRefused if the command is a launcher of its own, which would start everything once more."""
    word = command[0].rpartition("/")[2] if command else ""
    if contract is Contract.MULTIPROC:
        _find_starter(command)
    if word in _OTHER_STARTERS or (contract in _STARTERS and word == "torchrun"):
        from kedge.errors import LaunchRefused  # late: only for an error

        raise LaunchRefused(
            f"'{word}' starts processes itself, and kedge launch does it already",
            hint=f"leave out '{word}' and its options: kedge launch IMAGE python PROGRAM …",
        )


def _name_world(rank: Rank, terms: Terms) -> Variables:
    """What torch.distributed reads with env://, and torchrun's names for the node."""
    return {
        "RANK": str(rank.rank),
        "WORLD_SIZE": str(rank.size),
        "LOCAL_RANK": str(rank.local_rank),
        "LOCAL_WORLD_SIZE": str(rank.local_size),
        "NODE_RANK": str(rank.node_rank),
        "GROUP_RANK": str(rank.node_rank),
        "MASTER_ADDR": terms.rendezvous.address,
        "MASTER_PORT": str(terms.rendezvous.port),
    }


def _write_ranks(rank: Rank, terms: Terms) -> Variables:
    # left over from a torchrun around it they make rank 0 wait for a store that nobody opens
    return _name_world(rank, terms) | dict.fromkeys(_OF_TORCHRUN)


def _write_lightning(rank: Rank, terms: Terms) -> Variables:
    """Write variables of torchrun's workers: of all that Lightning detects, this alone takes the ranks as they are.

    Below srun it would count tasks and nodes itself, and stop where SLURM_NTASKS_PER_NODE is not set or nodes differ.
    A task alone on its node starts the other processes itself, as many as the program's `devices`.
    """
    if _is_alone_on_nodes(rank):
        return _write_starter(rank, terms) | {"SLURM_JOB_NAME": "bash"}
    return _write_ranks(rank, terms) | {"TORCHELASTIC_RUN_ID": terms.rendezvous.id, "SLURM_JOB_NAME": "bash"}


def _is_alone_on_nodes(rank: Rank) -> bool:
    """Whether every node has one rank."""
    return rank.size == rank.node_count


def _write_horovod(rank: Rank, terms: Terms) -> Variables:
    """MPI tells the ranks. Left to itself it may take Gloo, which waits for a horovodrun."""
    del rank, terms
    return {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}


def _write_jax(rank: Rank, terms: Terms) -> Variables:
    """JAX reads the address, and the numbers as srun names them, which therefore are set whatever the launcher is."""
    return {
        "SLURM_JOB_ID": terms.environ.get("SLURM_JOB_ID") or "1",
        "SLURM_STEP_NODELIST": ",".join(dict.fromkeys(terms.hosts)),
        "SLURM_NTASKS": str(rank.size),
        "SLURM_PROCID": str(rank.rank),
        "SLURM_LOCALID": str(rank.local_rank),
        "JAX_COORDINATOR_ADDRESS": terms.rendezvous.endpoint,
        "JAX_NUM_PROCESSES": str(rank.size),
        "JAX_PROCESS_ID": str(rank.rank),
    }


def _write_deepspeed(rank: Rank, terms: Terms) -> Variables:
    """`--launcher none`: with these five set DeepSpeed asks no MPI; the others are those that its own launcher sets."""
    own: Variables = {
        "LOCAL_SIZE": str(rank.local_size),
        "CROSS_RANK": str(rank.node_rank),
        "CROSS_SIZE": str(rank.node_count),
    }
    return _write_ranks(rank, terms) | own


def _write_tensorflow(rank: Rank, terms: Terms) -> Variables:
    """Every process listens: ports are counted up within a node."""
    seen: dict[str, int] = {}
    workers = []
    for host in terms.hosts:
        seen[host] = seen.get(host, -1) + 1
        workers.append(f"{host}:{terms.rendezvous.port + seen[host]}")
    task = {"type": "worker", "index": rank.rank}
    import json  # late: one contract of ten needs it

    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}


def _write_starter(rank: Rank, terms: Terms) -> Variables:
    """Write variables for multiproc.py and torchrun, which set the rest; PET_* are torchrun's options as variables."""
    leaked = [name for name in terms.environ if name.startswith("PET_")]
    wanted: Variables = {
        "MASTER_ADDR": terms.rendezvous.address,
        "MASTER_PORT": str(terms.rendezvous.port),
        "NODE_RANK": str(rank.node_rank),
    }
    return wanted | dict.fromkeys((*leaked, *_OF_TORCHRUN, *_OF_WORKERS))


def _write_nothing(rank: Rank, terms: Terms) -> Variables:
    del rank, terms
    return {}


def _write_preferences(contract: Contract, rank: Rank, terms: Terms) -> Variables:
    """Threads and interfaces."""
    found: Variables = {}
    given = terms.environ.get("OMP_NUM_THREADS", "")
    divides_itself = contract is Contract.LIGHTNING and _is_alone_on_nodes(rank)  # by the processes that it starts
    threads = (
        0
        if divides_itself
        else choose_omp_threads(terms.cpus, terms.processes if contract in _STARTERS else 1, given).count
    )
    if not terms.cpus and rank.local_size > 1 and not given:
        threads = 1  # nobody knows how many CPUs there are, but that all ranks of the node share them
    if threads:
        found["OMP_NUM_THREADS"] = str(threads)
    if terms.interface:  # NCCL takes a name as a beginning of names unless it is told not to
        wanted = {"NCCL_SOCKET_IFNAME": f"={terms.interface}", "GLOO_SOCKET_IFNAME": terms.interface}
        found |= {name: value for name, value in wanted.items() if not terms.environ.get(name)}
    return found


def _static_options(rank: Rank, terms: Terms) -> tuple[str, ...]:
    return (
        f"--nnodes={rank.node_count}",
        f"--nproc_per_node={terms.processes}",
        f"--node_rank={rank.node_rank}",
        f"--master_addr={terms.rendezvous.address}",
        f"--master_port={terms.rendezvous.port}",
    )


def _elastic_options(rank: Rank, terms: Terms) -> tuple[str, ...]:
    return (
        f"--nnodes={terms.least_nodes or rank.node_count}:{rank.node_count}",
        f"--nproc_per_node={terms.processes}",
        "--rdzv_backend=c10d",
        f"--rdzv_endpoint={terms.rendezvous.endpoint}",
        f"--rdzv_id={terms.rendezvous.id}",
        # else each node compares the address with its own names, and where none is the same nobody opens the store
        f"--rdzv_conf=is_host={int(rank.node_rank == 0)}",
        f"--max_restarts={terms.restarts}",
    )


def _find_starter(command: Sequence[str]) -> int:
    """The place behind `multiproc.py`, or `-m torch.distributed.launch`: its options go there, before the user's."""
    for place, word in enumerate(command):
        if word.endswith("multiproc.py") or word in ("torch.distributed.launch", "torch.distributed.run", "multiproc"):
            return place + 1
    from kedge.errors import LaunchRefused  # late: only for an error

    raise LaunchRefused(
        "the command names no multiproc.py, which the contract multiproc is for",
        hint="use --torchrun, or write it as: python …/multiproc.py PROGRAM …",
    )


_STARTERS = {Contract.TORCHRUN: "torchrun", Contract.ELASTIC: "torchrun", Contract.MULTIPROC: "multiproc"}
_OTHER_STARTERS = ("deepspeed", "horovodrun", "accelerate", "srun", "mpirun", "mpiexec", "ibrun")
_OF_TORCHRUN = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"),
    *("TORCHELASTIC_MAX_RESTARTS", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
)
_OF_WORKERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
_WRITERS: Mapping[Contract, Callable[[Rank, Terms], Variables]] = {
    Contract.NONE: _write_nothing,
    Contract.RANKS: _write_ranks,
    Contract.TORCHRUN: _write_starter,
    Contract.ELASTIC: _write_starter,
    Contract.MULTIPROC: _write_starter,
    Contract.LIGHTNING: _write_lightning,
    Contract.HOROVOD: _write_horovod,
    Contract.JAX: _write_jax,
    Contract.DEEPSPEED: _write_deepspeed,
    Contract.TENSORFLOW: _write_tensorflow,
}


# How many threads a process should compute with: its share of the node's CPUs, never all of them in every process.


@frozen
class ThreadChoice:
    """What OMP_NUM_THREADS becomes."""

    count: int  # 0: leave it as it is
    reason: str  # empty: there is nothing to say


def choose_omp_threads(cpus: int, processes: int, given: str = "") -> ThreadChoice:
    """Choose threads for one of `processes` that share `cpus`; `given` is what is set already. 0 CPUs: unknown.

    PBS sets it to the CPUs of the whole chunk, and many a profile to those of the node: such a number is replaced.
    """
    share = max(1, cpus // max(1, processes))
    set_already = int(given) if given.isascii() and given.isdecimal() and len(given) < 7 else 0
    if set_already and (not cpus or set_already <= share):
        return ThreadChoice(0, "")
    if not cpus:
        return ThreadChoice(1 if processes > 1 and not given else 0, "")
    if set_already:
        reason = f"OMP_NUM_THREADS={given} is more than the {cpus} CPUs of {count_things(processes, 'process')}"
        return ThreadChoice(share, f"{reason}: kedge sets {share}; --env OMP_NUM_THREADS={given} keeps it")
    return ThreadChoice(share, "") if not given else ThreadChoice(0, "")
