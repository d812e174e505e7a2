# SPDX-License-Identifier: BSD-3-Clause
"""What `all_reduce_perf` of nccl-tests prints, and what it writes with -J, as a report.

Its columns changed: without `root` before 2.12, without `redop` for some tests, `N/A` where nothing was checked. The
figures always are the last eight of a line: time, algbw, busbw and errors, out of place and then in place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kedge.compat.bandwidth.report import BandwidthReport, BandwidthRow
from kedge.frozen import frozen

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
    """One report for each table. A build without MPI prints a table of its own in every process."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if _BEGIN in line and any(_BEGIN in each for each in parts[-1]):
            parts.append([])
        parts[-1].append(line)
    reports = [_parse_table(lines) for lines in parts]
    return [report for report in reports if report.rows or report.ranks]


def parse_json(text: str) -> BandwidthReport | None:
    """The file that -J names; None where it is not one."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, Mapping) or not isinstance(document.get("results"), list):
        return None
    devices = [_read_device(each) for each in _list(document.get("devices")) if isinstance(each, Mapping)]
    ranks = len(devices)
    rows = [_read_result(each, ranks) for each in document["results"] if isinstance(each, Mapping)]
    return _make_report(devices, [row for row in rows if row is not None], _show_version(document.get("nccl_version")))


def _parse_table(lines: Iterable[str]) -> BandwidthReport:
    devices, rows, version = [], [], ""
    for line in lines:
        if match := _DEVICE.search(line):
            devices.append(_Device(int(match[1]), match[2], match[3]))
        elif match := _VERSION.match(line):
            version = _show_version(int(match[2])) if match[2] else ""
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


def _read_device(value: Mapping[str, Any]) -> _Device:
    rank = value.get("rank")
    return _Device(
        rank if isinstance(rank, int) else 0, str(value.get("hostname", "")), str(value.get("device_info", ""))
    )


def _read_result(value: Mapping[str, Any], ranks: int) -> BandwidthRow | None:
    size = value.get("size")
    parts = [part for name in ("out_of_place", "in_place") if isinstance(part := value.get(name), Mapping)]
    times = [_number(part.get("time", part.get("cpu_time"))) for part in parts]
    measured = [time for time in times if time > 0]
    if not isinstance(size, int) or not measured:
        return None
    wrong = max(int(_number(part.get("nwrong"))) for part in parts)
    return BandwidthRow(size, min(measured) / 1e6, ranks, wrong)


def _make_report(devices: list[_Device], rows: list[BandwidthRow], version: str) -> BandwidthReport:
    hosts = tuple(dict.fromkeys(device.host for device in devices))
    names = tuple(dict.fromkeys(device.name for device in devices))
    return BandwidthReport(way=_NAME, ranks=len(devices), hosts=hosts, devices=names, rows=tuple(rows), version=version)


def _show_version(code: object) -> str:
    """`NCCL 2.21.5` of 22105, `NCCL 2.8.4` of 2804."""
    if not isinstance(code, int) or isinstance(code, bool) or code <= 0:
        return ""
    unit = 10000 if code >= 10000 else 1000
    return f"NCCL {code // unit}.{code % unit // 100}.{code % 100}"


def _number(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else 0.0  # type: ignore[arg-type]  # a number, as said


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
