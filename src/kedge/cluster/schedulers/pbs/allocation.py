# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of a job of PBS: PBS_NODEFILE has a line for each process that the job asked for (`mpiprocs`).

NCPUS is that of the first chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kedge.cluster.allocation import Allocation, ThisHost
from kedge.cluster.hosts import parse_node_file
from kedge.cluster.schedulers.like_this_host import find_here, make_nodes


def read_allocation(environ: Mapping[str, str], read: Callable[[str], str], host: ThisHost) -> Allocation:
    """Return the job's hosts with their processes."""
    path = environ.get("PBS_NODEFILE", "")
    pairs = parse_node_file(read(path), f"PBS_NODEFILE ({path})") if path else ((host.name, 1),)
    told = environ.get("NCPUS", "")
    cpus = int(told) if told.isascii() and told.isdecimal() and len(told) < 6 else 0
    return Allocation(
        "pbs",
        make_nodes(pairs, host, cpus=cpus),
        job_id=environ.get("PBS_JOBID", ""),
        array_index=environ.get("PBS_ARRAY_INDEX", ""),
        here=find_here(pairs, host),
        host_file=path,
    )
