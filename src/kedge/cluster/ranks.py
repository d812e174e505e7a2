# SPDX-License-Identifier: BSD-3-Clause
"""Which rank a process is, by the variables that its launcher set.

Launchers name the rank, the number of ranks and those within the node, each in its own words; hardly one names the
node. Where it is not named it follows from the layout: ranks are dealt out in blocks, node by node.
"""

from __future__ import annotations

from itertools import accumulate

from kedge.base.frozen import JsonValue, frozen
from kedge.base.rank_variables import OWN
from kedge.cluster.hosts import parse_counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LARGEST = 10_000_000  # more ranks than any machine has


@frozen
class Rank(JsonValue):
    """One process of a launch: all numbers begin at 0, and -1 is unknown."""

    rank: int
    size: int
    local_rank: int  # within its node
    local_size: int
    node_rank: int  # which node it is on
    node_count: int


@frozen
class _Dialect:
    """The variables of one launcher, in the order of `Rank`; empty: it has none."""

    launcher: str
    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""
    node_rank: str = ""
    node_count: str = ""
    counts: str = ""  # that with the ranks of every node: 2(x2),1
    mark: str = ""  # must be set too


# The innermost first: mpirun within a job of Slurm starts its ranks below srun, whose variables they have as well.
_DIALECTS = (
    _Dialect("kedge", *OWN),
    _Dialect(
        "open_mpi",
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
    _Dialect(
        "mvapich",
        *("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ),
    _Dialect("hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", mark="MPI_LOCALRANKID"),
    _Dialect(
        launcher="flux_run",
        rank="FLUX_TASK_RANK",
        size="FLUX_JOB_SIZE",
        local_rank="FLUX_TASK_LOCAL_ID",
        local_size="",
        node_rank="",
        node_count="FLUX_JOB_NNODES",
    ),
    _Dialect(
        "srun",
        *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID", "SLURM_STEP_NUM_NODES"),
        counts="SLURM_STEP_TASKS_PER_NODE",
        mark="SLURM_STEP_ID",
    ),
    _Dialect("pals", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),  # HPE Cray, and others' PMI
)


def find_launcher(environ: Mapping[str, str]) -> str:
    """Which launcher started this process as one of its ranks: kedge, open_mpi, hydra, srun …; empty: none did."""
    dialect = _find_dialect(environ)
    return dialect.launcher if dialect else ""


def find_rank(environ: Mapping[str, str], layout: Sequence[int] = ()) -> Rank | None:
    """The rank of this process; None where no launcher started it. `layout`: the ranks of each node, if known.

    Raises LaunchRefused where the launcher's own numbers contradict each other or the layout.
    """
    dialect = _find_dialect(environ)
    if dialect is None:
        return None
    rank, size = _read(environ, dialect.rank), _read(environ, dialect.size)
    if not 0 <= rank < size:
        from kedge.errors import LaunchRefused  # late: only for an error

        raise LaunchRefused(
            f"the launcher says rank {rank} of {size}",
            context={dialect.rank: environ.get(dialect.rank, ""), dialect.size: environ.get(dialect.size, "")},
            hint="these variables are from different launches: start kedge launch outside of srun and mpirun",
        )
    if layout and sum(layout) != size:
        from kedge.errors import LaunchRefused  # late: only for an error

        raise LaunchRefused(
            f"the launcher started {size} ranks, and {sum(layout)} were asked for",
            hint="check the numbers of tasks and nodes of the job",
        )
    if environ.get(dialect.counts):  # how it dealt them out indeed, which may be otherwise than was asked for
        told = parse_counts(environ[dialect.counts], dialect.counts)
        layout = told if sum(told) == size else layout
    return _complete(environ, dialect, rank, size, layout)


def own_variables(rank: Rank) -> dict[str, str]:
    """The variables that tell a process its rank where kedge itself is the launcher."""
    fields = (rank.rank, rank.size, rank.local_rank, rank.local_size, rank.node_rank, rank.node_count)
    return {name: str(value) for name, value in zip(OWN, fields, strict=True)}


def _find_dialect(environ: Mapping[str, str]) -> _Dialect | None:
    for dialect in _DIALECTS:
        if all(environ.get(name) for name in (dialect.rank, dialect.size, dialect.mark) if name):
            return dialect
    return None


def _complete(environ: Mapping[str, str], dialect: _Dialect, rank: int, size: int, layout: Sequence[int]) -> Rank:
    """What the launcher does not say, from the layout: blocks; or from one node, or equal ones."""
    local_rank, local_size = _read(environ, dialect.local_rank), _read(environ, dialect.local_size)
    node_rank, node_count = _read(environ, dialect.node_rank), _read(environ, dialect.node_count)
    if not layout:
        layout = _guess_layout(size, local_size, node_count)
    if layout:
        firsts = [0, *accumulate(layout)]
        block = next(index for index, first in enumerate(firsts[1:]) if rank < first)
        node_count = len(layout)
        is_told = 0 <= node_rank < node_count
        node_rank = node_rank if is_told else block
        if not is_told:
            _require_block(
                Rank(
                    rank,
                    size=size,
                    local_rank=local_rank,
                    local_size=local_size,
                    node_rank=block,
                    node_count=node_count,
                ),
                firsts[block],
                layout[block],
            )
        local_rank = rank - firsts[node_rank] if local_rank < 0 else local_rank
        local_size = layout[node_rank] if local_size < 0 else local_size
    return Rank(
        rank, size=size, local_rank=local_rank, local_size=local_size, node_rank=node_rank, node_count=node_count
    )


def _require_block(rank: Rank, first: int, count: int) -> None:
    """Refuse where the launcher dealt the ranks out otherwise than was asked for: the node would be a wrong guess."""
    if rank.local_rank in (-1, rank.rank - first) and rank.local_size in (-1, count):
        return
    from kedge.errors import LaunchRefused  # late: only for an error

    raise LaunchRefused(
        f"the launcher made rank {rank.rank} number {rank.local_rank} of {rank.local_size} on its node,"
        f" and kedge asked for number {rank.rank - first} of {count}",
        hint="ask for the same number on each node with --tasks-per-node",
    )


def _guess_layout(size: int, local_size: int, node_count: int) -> Sequence[int]:
    if node_count > 0 and size % node_count == 0:
        return (size // node_count,) * node_count
    return (size,) if size == local_size else ()  # nodes may differ, and a wrong number is worse than none


def _read(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "") if name else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 and int(text) <= _LARGEST else -1
