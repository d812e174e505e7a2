# SPDX-License-Identifier: BSD-3-Clause
"""The machine, the image and the moment that figures are recorded with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.image_argument import is_reference
from kedge.base.release import VERSION
from kedge.cluster.interfaces import choose_interface, read_interfaces
from kedge.launch.surroundings import read_allocation_here
from kedge.system.files import explained
from kedge.system.host.cpu import read_processor
from kedge.system.host.fabric_rates import read_fabric_rates
from kedge.system.host.gpu_probe import probe_gpus
from kedge.system.host.limits import read_limits
from kedge.tools.bench.record import BenchRecord, Figure, Machine


def read_machine() -> Machine:
    """Return this host, as much of it as this process may use."""
    limits, probe, system = read_limits(), probe_gpus(), os.uname()
    processor = read_processor()
    return Machine(
        host=system.nodename,
        cpu=processor.model or processor.architecture or system.machine,
        cores=limits.cpus,
        memory=limits.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=tuple(gpu.name for gpu in probe.gpus if gpu.name),
        driver=probe.driver,
        kernel=system.release,
    )


def make_record(
    bench: str, figures: tuple[Figure, ...], machine: Machine, *, image: str = "", program: str = ""
) -> BenchRecord:
    """The record of a run that ends now."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return BenchRecord(
        bench=bench,
        figures=figures,
        machine=machine,
        image=image,
        digest=find_digest(image),
        program=program,
        kedge=VERSION,
        date=date,
    )


def find_digest(image: str) -> str:
    """The digest of an image: the one that its name states, or the file's. Empty: a directory, or a tag."""
    if is_reference(image):
        _, at, digest = image.rpartition("@")
        return digest if at else ""
    path = Path(image)
    if not image or not path.is_file():
        return ""
    with explained(path), path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


# What a measurement must know of this host and of the job: GPUs, nodes, the network between them.


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
