# SPDX-License-Identifier: BSD-3-Clause
"""What an image is judged against: this host, a queue of a cluster, or a GPU and a driver that somebody names."""

from __future__ import annotations

from collections.abc import Iterable

from kedge.base.frozen import frozen

# Where the architecture is from that something is judged for, where the target itself does not say it
NAMED, BUILT_IN, THIS_MACHINE = "--arch", "the GPU", "this machine"


def join_names(names: Iterable[str]) -> str:
    """`A100, H100 and V100`."""
    listed = list(dict.fromkeys(names))
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


@frozen
class Gpu:
    """One kind of GPU; unknown values are empty or None."""

    name: str  # as it is to be read: `NVIDIA H200`
    capability: str = ""  # 9.0
    architecture: str = ""  # Hopper
    kind: str = ""  # datacenter, workstation, consumer, embedded
    brand: str = ""  # NVML's word, as NVIDIA_REQUIRE_* uses it: tesla, nvidia, geforce, quadrortx, …
    takes_forward_compat: bool | None = None
    last_driver_branch: int | None = None  # 470 for Kepler; None: current drivers serve it, or unknown
    first_cuda: str = ""
    last_cuda: str = ""  # the last toolkit that makes code for it; empty: current ones do
    memory: str = ""  # `80`, GB as the table has it
    count: int = 1
    processor: str = ""  # arm64: of the hosts it is built into, where that is one kind only


@frozen
class Target:
    """A host, as far as it is known."""

    title: str  # `this machine (a100-7)`, `site zih-alpha, queue alpha`, `H200 with driver 535.104`
    origin: str = "host"  # host, queue or named
    gpus: tuple[Gpu, ...] = ()  # of different kinds; several where a queue is mixed
    has_gpus: bool | None = None  # False: it is known that there are none
    driver: str = ""  # 535.104.05; may be short, as somebody names it: 535.104, 535
    driver_source: str = ""  # where that is known from: `/proc/driver/nvidia/version`, `seen by a job on DATE`
    cuda: str = ""  # CUDA version that the driver offers; empty: by the table
    architecture: str = ""  # amd64, arm64
    architecture_source: str = ""  # where that is from: empty for the host's own, else one of those words
    cpu_features: frozenset[str] | None = None  # flags as /proc/cpuinfo names them; None: unknown
    cpu: str = ""  # its model's name
    glibc: str = ""
    mpi: str = ""  # `Open MPI 4.1.4`
    notes: tuple[str, ...] = ()
