# SPDX-License-Identifier: BSD-3-Clause
"""What links carry, in GB/s in one direction: between the GPUs of a node, and between nodes. Each row has its source.

Rates are nominal. What an allreduce reaches of them is `judge`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kedge.base.frozen import JsonValue, frozen


@frozen
class Link(JsonValue):
    """A way between two ranks."""

    name: str  # NVLink 4, InfiniBand NDR (400 Gb/s), Ethernet (10 Gb/s)
    rate: float  # GB/s in one direction; 0: unknown
    source: str = ""


@frozen
class _GpuLink:
    pattern: str  # of the name that nvidia-smi shows
    link: Link


_NVLINK = "NVIDIA's data sheet gives {total} GB/s for both directions together, {measured}"
_GPU_LINKS = (
    _GpuLink(r"\bB[23]00\b|GB[23]00", Link("NVLink 5", 900, _NVLINK.format(total=1800, measured="18 links of 100"))),
    _GpuLink(
        r"\bH[12]00(?!.*PCIe|.*NVL)|GH200|\bH20\b",
        Link("NVLink 4", 450, _NVLINK.format(total=900, measured="480 GB/s of bus bandwidth with NVLS: nccl#1374")),
    ),
    _GpuLink(r"\bH[18]00 NVL", Link("NVLink 4 bridge", 300, _NVLINK.format(total=600, measured="between pairs"))),
    _GpuLink(r"\bH800\b|\bA800\b", Link("NVLink, export models", 200, _NVLINK.format(total=400, measured="8 links"))),
    _GpuLink(
        r"A100-SXM|A100-SXM4|\bA100.*SXM",
        Link("NVLink 3", 300, _NVLINK.format(total=600, measured="about 208 of bus bandwidth: nccl-tests#178")),
    ),
    _GpuLink(r"V100.*(?:SXM|NVLINK)", Link("NVLink 2", 150, _NVLINK.format(total=300, measured="6 links of 50"))),
    _GpuLink(r"P100.*SXM", Link("NVLink 1", 80, _NVLINK.format(total=160, measured="4 links of 40"))),
    _GpuLink(
        r"H100.*PCIe|\bB40\b|RTX PRO|RTX 50[789]0",
        Link("PCIe 5 x16", 63, "PCI-SIG: 32 GT/s, 16 lanes, 128b/130b"),
    ),
    _GpuLink(
        r"\bA(?:100|800).*PCIe|\bA(?:2|10|10G|16|30|40)\b|\bL(?:4|40|40S)\b|RTX A\d{4}|RTX [34]0[5-9]0|\bA100-PCIE",
        Link("PCIe 4 x16", 31.5, "PCI-SIG: 16 GT/s, 16 lanes, 128b/130b"),
    ),
    _GpuLink(
        r"\bT4\b|V100|P100|RTX 20[678]0|Quadro|TITAN|K[48]0|M\d0\b|P[46]0?\b",
        Link("PCIe 3 x16", 15.75, "PCI-SIG: 8 GT/s, 16 lanes, 128b/130b"),
    ),
)
# Signalling rates as the kernel names them in /sys/class/infiniband/DEVICE/ports/N/rate
_INFINIBAND = "InfiniBand Trade Association: signalling rate of four lanes"
_MEMORY = Link("memory of one host", 0, "depends on the CPU: no figure that holds for all")


def find_gpu_link(name: str) -> Link | None:
    """The link between GPUs of that name in one node; None where the model is unknown."""
    return next((each.link for each in _GPU_LINKS if re.search(each.pattern, name, re.IGNORECASE)), None)


def make_network_link(kind: str, gigabits: Iterable[float]) -> Link | None:
    """Return all ports of a kind (InfiniBand, Ethernet) together; None where there are none."""
    rates = [rate for rate in gigabits if rate > 0]
    if not rates:
        return None
    each = f"{len(rates)} x {rates[0]:g}" if len(rates) > 1 else f"{rates[0]:g}"
    source = _INFINIBAND if kind == "InfiniBand" else "the speed that the kernel reports"
    return Link(f"{kind} ({each} Gb/s)", sum(rates) / 8, source)


def choose_link(
    hosts: int, devices: Iterable[str], infiniband: Iterable[float], ethernet: Iterable[float]
) -> Link | None:
    """The slowest link of the way: between hosts the network, on one host the GPUs' own, else its memory."""
    if hosts > 1:
        return make_network_link("InfiniBand", infiniband) or make_network_link("Ethernet", list(ethernet)[:1])
    names = list(devices)
    return find_gpu_link(names[0]) if names else _MEMORY
