# SPDX-License-Identifier: BSD-3-Clause
"""Whether an allreduce is as fast as the links between its ranks allow, and what is likely wrong where it is not."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen
from kedge.compat.bandwidth.links import Link
from kedge.compat.bandwidth.report import BandwidthReport

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
