# SPDX-License-Identifier: BSD-3-Clause
"""Bandwidth: outputs of three generations of nccl-tests, and how figures are judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kedge.compat.bandwidth import (
    GOOD,
    LOW,
    POOR,
    UNKNOWN,
    WRONG,
    BandwidthReport,
    BandwidthRow,
    Link,
    choose_link,
    find_gpu_link,
    judge_bandwidth,
    make_network_link,
    parse_text,
)
from tests.builders.rows import each_row
from tests.wording import assert_reads


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


def test_judge_sockets_wrong_sums_and_nothing_to_compare() -> None:
    verdict = judge_bandwidth(report(1.1, hosts=("n1", "n2")), Link("InfiniBand (400 Gb/s)", 50))
    assert verdict.level == POOR
    assert "NET/Socket" in verdict.remedy
    verdict = judge_bandwidth(report(1.1, way="MPI", hosts=("n1", "n2")), Link("InfiniBand (400 Gb/s)", 50))
    assert "kedge mpi show IMAGE" in verdict.remedy
    assert_reads(judge_bandwidth(report(5), choose_link(1, [], [], [])).sentence, "compat/gb-s-over-memory-one", "5.00")
    assert judge_bandwidth(report(5), None).level == UNKNOWN
    assert "one rank" in judge_bandwidth(report(5, ranks=1), None).sentence
    assert judge_bandwidth(BandwidthReport("MPI", 2), None).sentence == "nothing was measured"
    rows = (BandwidthRow(1 << 20, 1.0, 2, wrong=3),)
    assert judge_bandwidth(BandwidthReport("NCCL", 2, rows=rows), None).level == WRONG


# As in NVIDIA/nccl#1161 (two GPUs) with the header of nccl-tests#178's version
TWO_GPUS = """\
# nThread 1 nGpus 2 minBytes 1073741824 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  11234 on     node7 device  0 [0x21] NVIDIA H100 PCIe
#  Rank  1 Group  0 Pid  11234 on     node7 device  1 [0x01] NVIDIA H100 PCIe
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
  1073741824     268435456     float     sum      -1   9306.7  115.37  115.37      0   9291.5  115.56  115.56      0
  2147483648     536870912     float     sum      -1    18535  115.86  115.86      0    18524  115.93  115.93      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 115.68 
#
"""  # noqa: W291, E501 - as it is printed
# The columns of before 2.12: none for `root`, errors as the largest difference
OLD = """\
# Using devices
#   Rank  0 Pid   2110 on  machine device  0 [0x01] GeForce RTX 2080 Ti
#   Rank  1 Pid   2110 on  machine device  1 [0x02] GeForce RTX 2080 Ti
    67108864      16777216   float     sum   3136.6   21.40   21.40  0e+00   3121.8   21.50   21.50  0e+00
   134217728      33554432   float     sum   6597.2   20.34   20.34  0e+00   6140.6   21.86   21.86  2e-07
"""
# A build without MPI, started twice: as in nccl-tests#249, one rank each
ALONE = """\
# Using devices
#  Rank  0 Group  0 Pid    127 on {host} device  0 [0x00] NVIDIA A10G
           8             2     float     sum      -1     2.44    0.00    0.00      0     0.19    0.04    0.00      0
"""


def test_nccl_tests_of_three_generations() -> None:
    (report,) = parse_text(TWO_GPUS)
    assert (report.ranks, report.hosts, report.devices) == (2, ("node7",), ("NVIDIA H100 PCIe",))
    assert [row.bytes for row in report.rows] == [1 << 30, 2 << 30]
    assert report.best_bandwidth == pytest.approx(115.93, abs=0.01)
    assert report.wrong == 0
    (report,) = parse_text(OLD)
    assert report.best_bandwidth == pytest.approx(21.86, abs=0.01)
    reports = parse_text(ALONE.format(host="a") + ALONE.format(host="b"))
    assert [(report.ranks, report.hosts, report.best_bandwidth) for report in reports] == [
        (1, ("a",), 0.0),
        (1, ("b",), 0.0),
    ]
    line = " 8388608 2097152 float sum -1 212.5 39.4 39.4 {} 210.2 39.9 39.9 N/A\n"
    (report,) = parse_text(TWO_GPUS + line.format(16))
    assert report.wrong == 16
    (report,) = parse_text(TWO_GPUS + line.format("N/A"))
    assert (report.wrong, len(report.rows)) == (0, 3)


@given(some.text(max_size=300), some.integers(0, 900))
def test_nccl_tests_survive_any_text(noise: str, place: int) -> None:
    for text in (noise, TWO_GPUS[:place] + noise + TWO_GPUS[place:]):
        parse_text(text)
