# SPDX-License-Identifier: BSD-3-Clause
"""What a bench leaves: figures with their repeats, and the machine, image, version and date they belong to."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kedge.base.frozen import JsonValue, frozen
from kedge.errors import FileProblem
from kedge.system.files import explained

_LARGEST = 16 << 20  # bytes of a record that is read
_SECONDS = "s"


@frozen
class Figure(JsonValue):
    """One measured quantity: all its repeats, and the most that the hardware allows."""

    name: str  # 4096 float32
    unit: str  # GFLOP/s, GB/s, MB/s, s
    values: tuple[float, ...]
    limit: float | None = None  # in the same unit; None: unknown
    limit_name: str = ""  # where it comes from, or why it is unknown
    line: str = ""  # the figures that a plot joins
    place: float = 0.0  # on a plot's x axis; 0: it has none
    work: str = ""  # what the workers shared: figures of the same work have a speed-up
    workers: int = 0  # ranks or GPUs; 0: not of this kind
    nodes: int = 0

    json_also = ("median", "spread", "percent")

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """From the smallest to the largest value, as a share of the median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    @property
    def percent(self) -> float | None:
        """How near it comes to the limit; None: unknown."""
        if not self.limit or not self.median:
            return None
        return 100 * (self.limit / self.median if self.is_time else self.median / self.limit)

    @property
    def is_time(self) -> bool:
        """Less is better."""
        return self.unit == _SECONDS


@frozen
class Machine(JsonValue):
    """What figures depend on."""

    host: str = ""
    cpu: str = ""
    cores: int = 0
    memory: int = 0  # bytes
    gpus: tuple[str, ...] = ()
    driver: str = ""
    kernel: str = ""

    def list_differences(self, other: Machine) -> list[str]:
        """Where another machine differs, in words; its name alone is no difference."""
        names = {"cpu": "CPU", "cores": "cores", "memory": "memory", "gpus": "GPUs", "driver": "driver"}
        found = []
        for field, name in names.items():
            mine, theirs = self.show(field), other.show(field)
            if mine != theirs:
                found.append(f"{name}: {mine} and {theirs}")
        return found

    def show(self, field: str) -> str:
        """A field for people."""
        value = getattr(self, field)
        if field == "memory":
            return f"{value / (1 << 30):.0f} GiB" if value else "unknown"
        if field == "gpus":
            return show_gpus(value)
        return str(value) if value else "unknown"


def show_gpus(names: tuple[str, ...]) -> str:
    """2 x NVIDIA H200."""
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "none"


@frozen
class BenchRecord(JsonValue):
    """One run of a bench."""

    bench: str  # matmul, nbody, allreduce, pi, start, pull
    figures: tuple[Figure, ...]
    machine: Machine
    image: str = ""  # as the user named it; empty: outside of containers
    digest: str = ""
    program: str = ""  # NumPy 2.1, PyTorch 2.4, Open MPI 4.1.4
    kedge: str = ""
    date: str = ""  # of the start, UTC


def read_record(path: Path) -> BenchRecord:
    """A record that `--output` wrote; raises FileProblem where it is none."""
    with explained(path), path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    try:
        if len(data) > _LARGEST:
            raise ValueError("too large")
        return _read_document(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise FileProblem(
            f"'{path}' is not a record of kedge bench",
            hint="write one: kedge bench matmul --output FILE IMAGE",
        ) from problem


def _read_document(document: Mapping[str, Any]) -> BenchRecord:
    figures = tuple(_read_figure(each) for each in document["figures"])
    if not figures:
        raise ValueError("no figures")
    machine = document["machine"]
    return BenchRecord(
        str(document["bench"]),
        figures,
        Machine(
            host=str(machine["host"]),
            cpu=str(machine["cpu"]),
            cores=int(machine["cores"]),
            memory=int(machine["memory"]),
            gpus=tuple(str(name) for name in machine["gpus"]),
            driver=str(machine["driver"]),
            kernel=str(machine["kernel"]),
        ),
        *(str(document[name]) for name in ("image", "digest", "program", "kedge", "date")),
    )


def _read_figure(document: Mapping[str, Any]) -> Figure:
    values = tuple(float(value) for value in document["values"])
    if not values or not all(0 < value < float("inf") for value in values):
        raise ValueError("a value is no positive number")
    limit = document["limit"]
    return Figure(
        name=str(document["name"]),
        unit=str(document["unit"]),
        values=values,
        limit=None if limit is None else float(limit),
        limit_name=str(document["limit_name"]),
        line=str(document["line"]),
        place=float(document["place"]),
        work=str(document.get("work", "")),  # records of older releases have none of these
        workers=int(document.get("workers", 0)),
        nodes=int(document.get("nodes", 0)),
    )


# How often a bench does what it times.

T = TypeVar("T")


@frozen
class Repeats:
    """Runs before the first timing, and timed ones."""

    warmup: int
    timed: int

    def collect(self, work: Callable[[], T]) -> list[T]:
        """What the timed runs give."""
        return [work() for _ in range(self.warmup + self.timed)][self.warmup :]
