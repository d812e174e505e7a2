# SPDX-License-Identifier: BSD-3-Clause
"""Whether an allreduce is as fast as the links between its ranks allow, and what is likely wrong where it is not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from kedge.base.frozen import JsonValue, frozen

GOOD, LOW, POOR, WRONG, UNKNOWN = "good", "low", "poor", "wrong", "unknown"
# Shares of the nominal rate. Rings on NVLink reach 0.7 to 0.8 of it, verbs 0.9, sockets of fast networks half.
_GOOD_SHARE, _LOW_SHARE = 0.6, 0.25


@frozen
class BandwidthVerdict(JsonValue):
    """What is said of a measurement."""

    level: str  # good, low, poor, wrong, unknown
    sentence: str
    remedy: str = ""


def judge_bandwidth(report: BandwidthReport, link: Link | None) -> BandwidthVerdict:
    """The verdict and its reason."""
    if report.wrong:
        return BandwidthVerdict(
            WRONG,
            f"{report.wrong} sums were wrong: data was damaged between the ranks",
            "check the GPUs and the cables",
        )
    if not report.rows:
        return BandwidthVerdict(UNKNOWN, "nothing was measured", "look at the messages of the ranks")
    if report.ranks < 2:
        return BandwidthVerdict(
            UNKNOWN, "one rank exchanges no data: no bandwidth to compare", "give --tasks 2 or more"
        )
    best = report.best_bandwidth
    if link is None or link.rate <= 0:
        between = link.name if link is not None else "links of unknown speed"
        return BandwidthVerdict(UNKNOWN, f"{best:.2f} GB/s over {between}: there is no figure to compare with")
    share = best / link.rate
    sentence = f"{best:.2f} GB/s of bus bandwidth, {share:.0%} of {link.name}'s {link.rate:g} GB/s"
    if share >= _GOOD_SHARE:
        return BandwidthVerdict(GOOD, f"{sentence}: as fast as expected")
    if share >= _LOW_SHARE:
        return BandwidthVerdict(LOW, f"{sentence}: slower than expected", _explain_low(report))
    return BandwidthVerdict(POOR, f"{sentence}: much slower than expected", _explain_poor(report))


def _explain_low(report: BandwidthReport) -> str:
    if len(report.hosts) > 1:
        return "other jobs may share the network; larger messages (--bytes) come closer to its rate"
    return "larger messages (--bytes) come closer to the link's rate; other programs may use the host"


def _explain_poor(report: BandwidthReport) -> str:
    if report.way in ("NCCL", "nccl-tests") and len(report.hosts) > 1:
        return "NCCL probably uses sockets: NCCL_DEBUG=INFO shows 'NET/IB' or 'NET/Socket', and why"
    if report.way in ("NCCL", "nccl-tests"):
        return "NCCL probably copies through the host's memory: NCCL_DEBUG=INFO and 'nvidia-smi topo -m' show the way"
    if len(report.hosts) > 1:
        return "the ranks may use another network: 'kedge mpi show IMAGE' lists the fabrics that its MPI supports"
    return "the host may be busy, or ranks share CPUs"


# What links carry, in GB/s in one direction: between the GPUs of a node, and between nodes. Each row has its source.
#
# Rates are nominal. What an allreduce reaches of them is `judge`'s business.


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


# What `all_reduce_perf` of nccl-tests prints, as a report.
#
# Its columns changed: without `root` before 2.12, without `redop` for some tests, `N/A` where nothing was checked. The
# figures always are the last eight of a line: time, algbw, busbw and errors, out of place and then in place.

_NAME = "nccl-tests"
_DEVICE = re.compile(
    r"#?\s*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(.*\S)"
)
_VERSION = re.compile(r"#\s*nccl-tests version (\S+).*?(?:nccl-library=(\d+))?\s*$")
_BEGIN = "Using devices"
_FIGURES = 8
_FEWEST = _FIGURES + 3  # size, count and type before them


@frozen
class _Device:
    rank: int
    host: str
    name: str


def parse_text(text: str) -> list[BandwidthReport]:
    """Return one report for each table. A build without MPI prints a table of its own in every process."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if _BEGIN in line and any(_BEGIN in each for each in parts[-1]):
            parts.append([])
        parts[-1].append(line)
    reports = [_parse_table(lines) for lines in parts]
    return [report for report in reports if report.rows or report.ranks]


def _parse_table(lines: Iterable[str]) -> BandwidthReport:
    devices, rows, version = [], [], ""
    for line in lines:
        if match := _DEVICE.search(line):
            devices.append(_Device(int(match[1]), match[2], match[3]))
        elif match := _VERSION.match(line):
            version = _show_version(int(match[2] or 0))
        else:
            rows.append(line)
    ranks = len(devices)
    found = [row for line in rows if (row := _parse_row(line.split(), ranks)) is not None]
    return _make_report(devices, found, version)


def _parse_row(words: list[str], ranks: int) -> BandwidthRow | None:
    if len(words) < _FEWEST or not words[0].isdecimal() or not words[1].isdecimal():
        return None
    figures = [_parse_figure(word) for word in words[-_FIGURES:]]
    out, inside = figures[:4], figures[4:]
    times = [each[0] for each in (out, inside) if each[0] is not None and each[0] > 0]
    if not times:
        return None
    wrong = max(_count_wrong(words[-5]), _count_wrong(words[-1]))
    return BandwidthRow(int(words[0]), min(times) / 1e6, ranks, wrong)


def _parse_figure(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _count_wrong(word: str) -> int:
    """`0`, `16`, `N/A`; before 2.12 the largest error, such as `2e-07`, which is no count."""
    return int(word) if word.isdecimal() else 0


def _make_report(devices: list[_Device], rows: list[BandwidthRow], version: str) -> BandwidthReport:
    hosts = tuple(dict.fromkeys(device.host for device in devices))
    names = tuple(dict.fromkeys(device.name for device in devices))
    return BandwidthReport(way=_NAME, ranks=len(devices), hosts=hosts, devices=names, rows=tuple(rows), version=version)


def _show_version(code: int) -> str:
    """`NCCL 2.21.5` of 22105, `NCCL 2.8.4` of 2804; nothing of 0."""
    if not code:
        return ""
    unit = 10000 if code >= 10000 else 1000
    return f"NCCL {code // unit}.{code % unit // 100}.{code % 100}"


# What one allreduce measurement found: a row for each message size, and who took part.

_LARGE = 1 << 20  # bytes: below, a row shows latency and not bandwidth


@frozen
class BandwidthRow(JsonValue):
    """One message size."""

    bytes: int
    seconds: float  # of one operation, of the slowest rank
    ranks: int
    wrong: int = 0  # elements with a wrong sum

    json_also = ("algorithm_bandwidth", "bus_bandwidth")

    @property
    def algorithm_bandwidth(self) -> float:
        """GB/s: the message's bytes over the time."""
        return self.bytes / self.seconds / 1e9 if self.seconds > 0 else 0.0

    @property
    def bus_bandwidth(self) -> float:
        """GB/s that each link carried: 2(n-1)/n times as much, since every byte is sent to be added and sent back."""
        return self.algorithm_bandwidth * 2 * (self.ranks - 1) / self.ranks if self.ranks > 1 else 0.0


@frozen
class BandwidthReport(JsonValue):
    """One measurement."""

    way: str  # NCCL, Gloo, MPI or nccl-tests
    ranks: int
    hosts: tuple[str, ...] = ()  # each once
    devices: tuple[str, ...] = ()  # names of GPUs, each once; empty: memory of the host
    rows: tuple[BandwidthRow, ...] = ()
    version: str = ""  # of the library that was measured

    json_also = ("best_bandwidth", "latency")

    @property
    def best_bandwidth(self) -> float:
        """The best bus bandwidth of large messages, GB/s; of all where there are no large ones."""
        large = [row for row in self.rows if row.bytes >= _LARGE]
        return max((row.bus_bandwidth for row in large or self.rows), default=0.0)

    @property
    def latency(self) -> float:
        """Seconds of the smallest message."""
        return min(self.rows, key=lambda row: row.bytes).seconds if self.rows else 0.0

    @property
    def wrong(self) -> int:
        """How many sums were wrong, of all sizes."""
        return sum(row.wrong for row in self.rows)
