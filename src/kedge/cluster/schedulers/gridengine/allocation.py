# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of a job of Grid Engine: PE_HOSTFILE, and without a parallel environment the one host it runs on.

A slot is a process and, as sites use it, a CPU. GPUs are a site's own affair: what this host has for the job, others
with as many slots are taken to have as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kedge.cluster.allocation import Allocation, ThisHost
from kedge.cluster.hosts import parse_pe_hostfile
from kedge.cluster.schedulers.like_this_host import find_here, make_nodes


def read_allocation(environ: Mapping[str, str], read: Callable[[str], str], host: ThisHost) -> Allocation:
    """Return the job's hosts with their slots."""
    path = environ.get("PE_HOSTFILE", "")
    pairs = parse_pe_hostfile(read(path), f"PE_HOSTFILE ({path})") if path else ((host.name, 1),)
    index = environ.get("SGE_TASK_ID", "")
    return Allocation(
        "gridengine",
        make_nodes(pairs, host, slot_cpus=True),
        job_id=environ.get("JOB_ID", ""),
        array_index=index if index != "undefined" else "",
        here=find_here(pairs, host),
        step_id="qrsh" if environ.get("PE") and not path else "",  # a task of `qrsh -inherit`: one of the job's hosts
        host_file=path,
    )
