# SPDX-License-Identifier: BSD-3-Clause
"""What `all_reduce_perf` of nccl-tests prints, as a report.

Its columns changed: without `root` before 2.12, without `redop` for some tests, `N/A` where nothing was checked. The
figures always are the last eight of a line: time, algbw, busbw and errors, out of place and then in place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from kedge.base.frozen import frozen
from kedge.compat.bandwidth.report import BandwidthReport, BandwidthRow

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
