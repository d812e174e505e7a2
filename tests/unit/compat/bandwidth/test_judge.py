# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from kedge.compat.bandwidth.judge import GOOD, LOW, POOR, UNKNOWN, WRONG, judge_bandwidth
from kedge.compat.bandwidth.links import Link, choose_link, find_gpu_link, make_network_link
from kedge.compat.bandwidth.report import BandwidthReport, BandwidthRow
from tests.builders.rows import each_row


def report(bandwidth: float, *, way: str = "NCCL", ranks: int = 2, hosts: tuple[str, ...] = ("n1",)) -> BandwidthReport:
    """A report whose bus bandwidth is this, in GB/s."""
    size = 1 << 30
    seconds = size / (bandwidth * 1e9) * 2 * (ranks - 1) / ranks if ranks > 1 else 1.0
    return BandwidthReport(way, ranks, hosts, (), (BandwidthRow(8, 1e-5, ranks), BandwidthRow(size, seconds, ranks)))


@each_row(("name", "link", "rate"), [
    ("NVIDIA H200", "NVLink 4", 450), ("NVIDIA H100 80GB HBM3", "NVLink 4", 450),
    ("NVIDIA H100 PCIe", "PCIe 5 x16", 63), ("NVIDIA H100 NVL", "NVLink 4 bridge", 300),
    ("NVIDIA A100-SXM4-80GB", "NVLink 3", 300), ("NVIDIA A100-PCIE-40GB", "PCIe 4 x16", 31.5),
    ("NVIDIA A100 80GB PCIe", "PCIe 4 x16", 31.5), ("Tesla V100-SXM2-32GB", "NVLink 2", 150),
    ("Tesla V100-PCIE-16GB", "PCIe 3 x16", 15.75), ("NVIDIA B200", "NVLink 5", 900),
    ("NVIDIA L40S", "PCIe 4 x16", 31.5), ("NVIDIA GeForce RTX 4090", "PCIe 4 x16", 31.5),
    ("Tesla K40m", "PCIe 3 x16", 15.75),
])  # fmt: skip
def test_judge_link_between_gpus(name: str, link: str, rate: float) -> None:
    found = find_gpu_link(name)
    assert (found.name, found.rate) == (link, rate)
    assert found.source


def test_judge_link_between_hosts_is_the_network() -> None:
    link = choose_link(2, ["NVIDIA H200"], [400.0, 400.0], [10.0])
    assert (link.name, link.rate) == ("InfiniBand (2 x 400 Gb/s)", 100)
    link = choose_link(2, [], [], [10.0, 1.0])
    assert (link.name, link.rate) == ("Ethernet (10 Gb/s)", 1.25)
    assert choose_link(2, [], [], []) is None
    assert make_network_link("Ethernet", [-1.0]) is None
    assert find_gpu_link("Abacus 1") is None


@each_row(("bandwidth", "level", "word"), [(360, GOOD, "80%"), (200, LOW, "slower"), (20, POOR, "host's memory")])
def test_judge_share_of_the_rate(bandwidth: float, level: str, word: str) -> None:
    verdict = judge_bandwidth(report(bandwidth), find_gpu_link("NVIDIA H200"))
    assert verdict.level == level
    assert word in verdict.sentence + verdict.remedy


def test_judge_sockets_instead_of_infiniband() -> None:
    verdict = judge_bandwidth(report(1.1, hosts=("n1", "n2")), Link("InfiniBand (400 Gb/s)", 50))
    assert verdict.level == POOR
    assert "NET/Socket" in verdict.remedy
    verdict = judge_bandwidth(report(1.1, way="MPI", hosts=("n1", "n2")), Link("InfiniBand (400 Gb/s)", 50))
    assert "kedge mpi show IMAGE" in verdict.remedy


def test_judge_without_a_figure() -> None:
    assert judge_bandwidth(report(5), choose_link(1, [], [], [])).sentence == (
        "5.00 GB/s over memory of one host: there is no figure to compare with"
    )
    assert judge_bandwidth(report(5), None).level == UNKNOWN
    assert "one rank" in judge_bandwidth(report(5, ranks=1), None).sentence
    assert judge_bandwidth(BandwidthReport("MPI", 2), None).sentence == "nothing was measured"


def test_judge_wrong_sums_before_all_else() -> None:
    rows = (BandwidthRow(1 << 20, 1.0, 2, wrong=3),)
    assert judge_bandwidth(BandwidthReport("NCCL", 2, rows=rows), None).level == WRONG
