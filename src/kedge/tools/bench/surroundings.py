# SPDX-License-Identifier: BSD-3-Clause
"""What a measurement must know of this host and of the job: GPUs, nodes, the network between them."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.frozen import frozen
from kedge.cluster.interfaces import choose_interface
from kedge.cluster.network_interfaces import read_interfaces
from kedge.launch.surroundings import read_allocation_here
from kedge.system.host.fabric_rates import read_fabric_rates
from kedge.system.host.gpu_probe import probe_gpus


def count_gpus(environ: Mapping[str, str]) -> int | None:
    """The GPUs of the first node of the job; where the scheduler does not say, those of this host.

    None: unknown from here, as on a login node with an allocation.
    """
    allocation = read_allocation_here(environ)
    stated = allocation.nodes[0].gpus if allocation.nodes else None
    if stated is not None or not allocation.here:
        return stated
    return len(probe_gpus().gpus)


def count_nodes(environ: Mapping[str, str]) -> int:
    """How many nodes the job has."""
    return max(read_allocation_here(environ).node_count, 1)


@frozen
class NetworkRates:
    """Gb/s of the ways from this host to other nodes."""

    fabric: tuple[float, ...] = ()  # InfiniBand, Omni-Path and RoCE
    ethernet: tuple[float, ...] = ()  # the interface that leads to other nodes


def read_rates(environ: Mapping[str, str]) -> NetworkRates:
    """Return this host's rates, if it is one of the job's nodes: a login node may have another network."""
    if not read_allocation_here(environ).here:
        return NetworkRates()
    interfaces = read_interfaces()
    chosen = choose_interface(interfaces).name
    speeds = (each.speed / 1000 for each in interfaces if each.name == chosen and each.speed > 0)
    return NetworkRates(tuple(read_fabric_rates()), tuple(speeds))
