# SPDX-License-Identifier: BSD-3-Clause
"""Durations, sizes, ports and signals as Docker reads them."""

from __future__ import annotations

import pytest

from kedge.builds.dockerfile.mounts import read_bytes, read_nanoseconds
from kedge.builds.dockerfile.planner import PortError, is_signal, read_ports
from tests.builders.rows import each_row, with_rows


@with_rows(
    *(("0", 0), ("1ns", 1), ("1.5us", 1500), ("2\xb5s", 2000), ("1h2m3.5s", 3723_500_000_000)),
    *(("-1s", -1_000_000_000), ("+.5s", 500_000_000), ("1.s", 1_000_000_000)),
    *((wrong, None) for wrong in ("", "1", "s", "1d", "1s2", ".s", "1 s", "9999999999h")),
)
def test_values_durations(text: str, time: int | None) -> None:
    assert read_nanoseconds(text) == time


@with_rows(
    *(("0", 0), ("1", 1), ("1b", 1), ("1k", 1024), ("1.5KiB", 1536), ("2 mb", 2 << 20), ("1G", 1 << 30)),
    *((wrong, None) for wrong in ("", "k", "1x", "-1", "1kbb", "1  k")),
)
def test_values_sizes(text: str, size: int | None) -> None:
    assert read_bytes(text) == size


@with_rows(
    ("80", ["80/tcp"]),
    ("80/UDP", ["80/udp"]),
    ("80/", ["80/tcp"]),
    ("8000-8002/sctp", ["8000/sctp", "8001/sctp", "8002/sctp"]),
    *(("8080:80", ["80/tcp"]), ("127.0.0.1::80", ["80/tcp"]), ("[::1]:8080:80", ["80/tcp"]), ("1-2:3", ["3/tcp"])),
    ("1-2:3-4", ["3/tcp", "4/tcp"]),
)
def test_values_ports(word: str, ports: list[str]) -> None:
    assert read_ports(word) == ports


@each_row("word", ["", "/tcp", "a", "80/icmp", "65536", "2-1", "1-2:3-5", "x:1:2", "a:80", "-1", "80-"])
def test_values_wrong_ports(word: str) -> None:
    with pytest.raises(PortError):
        read_ports(word)


@each_row(("text", "is_one"), [("SIGTERM", 1), ("term", 1), ("9", 1), ("RTMIN+3", 1), ("0", 0), ("X", 0)])
def test_values_signals(text: str, is_one: int) -> None:
    assert is_signal(text) == bool(is_one)
