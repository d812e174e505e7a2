# SPDX-License-Identifier: BSD-3-Clause
"""What one allreduce measurement found: a row for each message size, and who took part."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen

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
