# SPDX-License-Identifier: BSD-3-Clause
"""What --memory, --cpus and the like ask for, as values; and the files of a control group that say the same."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kedge.base.frozen import replace
from kedge.errors import UsageError
from kedge.system.files import explained

_PERIOD = 100_000  # microseconds in which a quota of processor time is counted
_UNITS = "kmgtp"
_SIZE = re.compile(rf"([0-9]+)(?:\.([0-9]+))? ?(?:([{_UNITS}])?i?b?)?", re.IGNORECASE)
_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """Limits of one container; None where nothing was asked."""

    memory: int | None = None
    reservation: int | None = None
    swap: int | None = None  # memory and swap together; UNLIMITED
    keeps_oom: bool = False  # --oom-kill-disable
    quota: int | None = None  # microseconds of processor time in a period
    shares: int | None = None  # of processor time, 1024 being an equal one
    cpus: str = ""  # which processors
    nodes: str = ""  # which memory nodes
    processes: int | None = None
    weight: int | None = None  # of disk traffic, 10 to 1000
    weights: Mapping[str, int] = field(default_factory=dict)  # the same by device, as 8:0


def read_request(limits: Sequence[str]) -> ResourceRequest:
    """The request that `memory=8G` and the like make; later ones win."""
    request = ResourceRequest()
    for limit in limits:
        name, _, value = limit.partition("=")
        request = replace(request, **_READERS[name](value, f"--{name}"))
    if request.swap not in (None, UNLIMITED) and (request.memory is None or (request.swap or 0) < request.memory):
        raise UsageError(
            "--memory-swap limits memory and swap together: it needs --memory, with the same or a smaller value",
            hint="--memory 4G --memory-swap 6G gives 4 GiB of memory and 2 GiB of swap",
        )
    return request


def parse_size(text: str, flag: str) -> int:
    """`512M`, `8G` or a number of bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"'{text}' is not a valid value of {flag}", hint=f"for example {flag} 512M or {flag} 8G")
    unit = 1024 ** (_UNITS.index(match[3].lower()) + 1) if match[3] else 1
    return int(match[1]) * unit + int(float(f"0.{match[2] or 0}") * unit)


def _parse_number(text: str, flag: str, least: int, most: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()) or not least <= int(text) <= most:
        raise UsageError(f"'{text}' is not a valid value of {flag}", hint=f"use a number from {least} to {most}")
    return int(text)


def _parse_quota(text: str, flag: str) -> int:
    try:
        cpus = float(text)
    except ValueError:
        cpus = math.nan
    if not 0.01 <= cpus <= 1 << 16:
        raise UsageError(f"'{text}' is not a valid value of {flag}", hint=f"a number of CPUs, for example {flag} 1.5")
    return int(cpus * _PERIOD)


def _parse_list(text: str, flag: str) -> str:
    if not _LIST.fullmatch(text):
        raise UsageError(f"'{text}' is not a valid value of {flag}", hint=f"for example {flag} 0-3,8")
    return text


def _parse_weights(text: str, flag: str) -> dict[str, int]:
    """`/dev/sda:500`, several separated by commas."""
    weights = {}
    for entry in text.split(","):
        path, _, weight = entry.rpartition(":")
        try:
            number = Path(path).stat().st_rdev
        except OSError:
            number = 0
        if not number:
            raise UsageError(f"'{entry}' is not a valid value of {flag}", hint=f"write {flag} /dev/sda:500")
        weights[f"{os.major(number)}:{os.minor(number)}"] = _parse_number(weight, flag, 10, 1000)
    return weights


def _parse_swap(text: str, flag: str) -> int:
    return UNLIMITED if text.strip() == "-1" else parse_size(text, flag)


def _read_file(text: str, flag: str) -> dict[str, Any]:
    """The tables of a cgroups.toml, as Apptainer's documentation has them."""
    path = Path(text)
    with explained(path):
        raw = path.read_bytes()
    try:
        tables = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{flag} {path} is not TOML: {problem}") from None
    limits: dict[str, Any] = {}
    for table, values in tables.items():
        for key, value in (values if isinstance(values, dict) else {"": values}).items():
            if (table, key) not in _FILE_KEYS:
                known = ", ".join(f"{table}.{key}" for table, key in _FILE_KEYS)
                raise UsageError(f"{path}: kedge cannot set '{table}.{key}'", hint=f"use {known}")
            name = _FILE_KEYS[table, key]
            shown = str(value / _PERIOD) if name == "cpus" and isinstance(value, int) else str(value)
            limits.update(_READERS[name](shown, f"{path}: {table}.{key}"))
    return limits


_FILE_KEYS = {
    ("memory", "limit"): "memory",
    ("memory", "reservation"): "memory-reservation",
    ("memory", "swap"): "memory-swap",
    ("cpu", "shares"): "cpu-shares",
    ("cpu", "quota"): "cpus",  # for the usual period
    ("cpu", "cpus"): "cpuset-cpus",
    ("cpu", "mems"): "cpuset-mems",
    ("pids", "limit"): "pids-limit",
    ("blockIO", "weight"): "blkio-weight",
}
_READERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "memory": lambda text, flag: {"memory": parse_size(text, flag)},
    "memory-reservation": lambda text, flag: {"reservation": parse_size(text, flag)},
    "memory-swap": lambda text, flag: {"swap": _parse_swap(text, flag)},
    "oom-kill-disable": lambda _text, _flag: {"keeps_oom": True},
    "cpus": lambda text, flag: {"quota": _parse_quota(text, flag)},
    "cpu-shares": lambda text, flag: {"shares": _parse_number(text, flag, 2, 262144)},
    "cpuset-cpus": lambda text, flag: {"cpus": _parse_list(text, flag)},
    "cpuset-mems": lambda text, flag: {"nodes": _parse_list(text, flag)},
    "pids-limit": lambda text, flag: {"processes": _parse_number(text, flag, -1, 1 << 22)},
    "blkio-weight": lambda text, flag: {"weight": _parse_number(text, flag, 10, 1000)},
    "blkio-weight-device": lambda text, flag: {"weights": _parse_weights(text, flag)},
    "apply-cgroups": _read_file,
}

Writes = dict[str, list[tuple[str, str]]]  # by controller: file and text, in the order of writing


def plan_first(request: ResourceRequest) -> Writes:
    """The files of control groups version 1."""
    writes: Writes = {"memory": [], "cpu": [], "cpuset": [], "pids": [], "blkio": []}
    _add(writes["memory"], "memory.limit_in_bytes", request.memory)
    _add(writes["memory"], "memory.soft_limit_in_bytes", request.reservation)
    _add(writes["memory"], "memory.memsw.limit_in_bytes", request.swap)
    _add(writes["memory"], "memory.oom_control", 1 if request.keeps_oom else None)
    if request.quota is not None:
        writes["cpu"] += [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(request.quota))]
    _add(writes["cpu"], "cpu.shares", request.shares)
    _add(writes["cpuset"], "cpuset.cpus", request.cpus or None)
    _add(writes["cpuset"], "cpuset.mems", request.nodes or None)
    _add(writes["pids"], "pids.max", _or_max(request.processes))
    _add(writes["blkio"], "blkio.weight", request.weight)
    writes["blkio"] += [("blkio.weight_device", f"{device} {weight}") for device, weight in request.weights.items()]
    return {controller: values for controller, values in writes.items() if values}


def plan_second(request: ResourceRequest) -> Writes:
    """The files of control groups version 2."""
    if request.keeps_oom:
        raise UsageError("--oom-kill-disable cannot be applied: cgroup v2 has no such setting", hint="leave it out")
    writes: Writes = {"memory": [], "cpu": [], "cpuset": [], "pids": [], "io": []}
    _add(writes["memory"], "memory.max", request.memory)
    _add(writes["memory"], "memory.low", request.reservation)
    if request.swap is not None:
        swap = "max" if request.swap == UNLIMITED else str(request.swap - (request.memory or 0))
        writes["memory"].append(("memory.swap.max", swap))
    _add(writes["cpu"], "cpu.max", f"{request.quota} {_PERIOD}" if request.quota is not None else None)
    _add(writes["cpu"], "cpu.weight", _weigh(request.shares))
    _add(writes["cpuset"], "cpuset.cpus", request.cpus or None)
    _add(writes["cpuset"], "cpuset.mems", request.nodes or None)
    _add(writes["pids"], "pids.max", _or_max(request.processes))
    _add(writes["io"], "io.weight", f"default {request.weight}" if request.weight is not None else None)
    writes["io"] += [("io.weight", f"{device} {weight}") for device, weight in request.weights.items()]
    return {controller: values for controller, values in writes.items() if values}


def _add(writes: list[tuple[str, str]], name: str, value: object) -> None:
    if value is not None:
        writes.append((name, str(value)))


def _or_max(number: int | None) -> str | None:
    return None if number is None else "max" if number <= 0 else str(number)


def _weigh(shares: int | None) -> int | None:
    """Shares of 2 to 262144 as a weight of 1 to 10000, as the kernel's documentation and runc do."""
    return None if shares is None else 1 + (shares - 2) * 9999 // 262142
