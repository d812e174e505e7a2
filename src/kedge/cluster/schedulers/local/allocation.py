# SPDX-License-Identifier: BSD-3-Clause
"""This machine as an allocation of one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kedge.cluster.allocation import AllocatedNode, Allocation, ThisHost


def read_allocation(environ: Mapping[str, str], read: Callable[[str], str], host: ThisHost) -> Allocation:
    """Return one node; inside a job of the local queue, with its id. One process, unless there are GPUs to fill."""
    del read
    node = AllocatedNode(host.name, max(host.gpus, 1), host.cpus, host.gpus)
    return Allocation(
        "local",
        (node,),
        job_id=environ.get("KEDGE_LOCAL_JOB_ID", ""),
        array_index=environ.get("KEDGE_LOCAL_ARRAY_INDEX", ""),
        here=host.name,
    )
