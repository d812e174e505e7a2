# SPDX-License-Identifier: BSD-3-Clause
"""How a conversion uses the cores of a node: the same image on 2, 4, 8, 16 of them, beside the floor of as many.

The floor of a count is the lowest of three: one thread that inflates, layers side by side in processes, one layer by
all cores with rapidgzip where it is installed. Every count must give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from measure import Cost, measure

HERE = Path(__file__).resolve().parent
KEDGE = HERE.parent / ".venv/bin/kedge"
PYTHON = HERE.parent / ".venv/bin/python"


@dataclass(frozen=True, slots=True)
class Row:
    cores: int
    floors: dict[str, Cost]
    sif: Cost
    folder: Cost | None
    digest: str

    @property
    def floor(self) -> Cost:
        return min(self.floors.values(), key=lambda cost: cost.wall)

    def as_dict(self) -> dict[str, object]:
        floors = {name: cost.wall for name, cost in self.floors.items()}
        return {
            "cores": self.cores, "floors": floors, "sif": self.sif.wall, "sif_cpu": self.sif.cpu,
            "sif_peak": self.sif.peak, "folder": self.folder and self.folder.wall,
            "folder_peak": self.folder and self.folder.peak, "sha256": self.digest,
        }  # fmt: skip

    def show(self, ways: list[str], available: int) -> str:
        note = "" if self.cores <= available else f" threads on {available}"
        walls = " | ".join(f"{self.floors[way].wall:.2f} s" for way in ways)
        ratio = self.sif.wall / self.floor.wall
        folder = f"{self.folder.wall:.2f} s | {self.folder.peak / 1e6:.0f} MB" if self.folder else " | "
        return (
            f"| {self.cores}{note} | {walls} | {self.sif.wall:.2f} s | {ratio:.2f} | {self.sif.cpu:.1f} s | "
            f"{self.sif.peak / 1e6:.0f} MB | {folder} |"
        )


class CoreBench:
    """One image, measured on several numbers of cores."""

    def __init__(self, work: Path, layout: Path, times: int, without: list[str]) -> None:
        self.place = work / "run" / "cores"
        self.layout, self.times = layout, times
        self.available = sorted(os.sched_getaffinity(0))
        ways = ["one thread", "processes"]
        if importlib.util.find_spec("rapidgzip") or self._has_rapidgzip():
            ways.append("rapidgzip")
        self.ways = [way for way in ways if way not in without]
        self.has_folder = "directory" not in without

    def _has_rapidgzip(self) -> bool:
        sites = (HERE.parent / ".venv/lib").glob("python*/site-packages/rapidgzip*")
        return any(sites)

    def measure(self, cores: int) -> Row:
        """Floors and kedge in turn, so that what else the machine does falls on all; the fastest of each counts."""
        floors: dict[str, list[Cost]] = {way: [] for way in self.ways}
        sifs, folders, digests = [], [], set()
        for _ in range(self.times):
            for way in self.ways:
                floors[way].append(measure([*self._taskset(cores), str(PYTHON), *self._floor(way)]))
            sifs.append(self._convert(cores, "sif"))
            digests.add(_hash(self.place / "image.sif"))
            if self.has_folder:
                folders.append(self._convert(cores, "sandbox"))
        if len(digests) > 1:
            sys.exit(f"{cores} cores gave different images: {', '.join(sorted(digests))}")
        best = {way: min(costs, key=lambda cost: cost.wall) for way, costs in floors.items()}
        fastest = [min(costs, key=lambda cost: cost.wall) if costs else None for costs in (sifs, folders)]
        assert fastest[0] is not None
        return Row(cores, best, fastest[0], fastest[1], digests.pop())

    def _taskset(self, cores: int) -> list[str]:
        chosen = ",".join(map(str, self.available[:cores]))
        return ["taskset", "-c", chosen]

    def _floor(self, way: str) -> list[str]:
        if way == "one thread":
            return [str(HERE / "floor.py"), str(self.layout)]
        return [str(HERE / "side_by_side.py"), str(self.layout), way]

    def _convert(self, cores: int, form: str) -> Cost:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        target = self.place / ("image.sif" if form == "sif" else "image")
        argv = [str(KEDGE), "convert", "--quiet", "--force", "--format", form, f"oci:{self.layout}:bench", str(target)]
        if cores > len(self.available):
            argv[2:2] = ["--threads", str(cores)]
        return measure([*self._taskset(cores), *argv])


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def measure_cores(bench: CoreBench, counts: list[int]) -> list[dict]:
    """Print the table for these numbers of cores and return its rows."""
    packed = sum(path.stat().st_size for path in (bench.layout / "blobs/sha256").iterdir())
    print(f"\n{bench.layout.name}: 8 layers, {packed / 1e6:.0f} MB compressed; {len(bench.available)} cores here")
    print("| cores | " + " | ".join(f"floor: {way}" for way in bench.ways), end=" | ")
    print("kedge to SIF | × floor | CPU | peak memory | kedge to a directory | peak memory |")
    print("|---" * (len(bench.ways) + 7) + "|")
    rows = []
    for count in counts:
        row = bench.measure(count)
        rows.append(row)
        print(row.show(bench.ways, len(bench.available)), flush=True)
    shutil.rmtree(bench.place, ignore_errors=True)
    if len({row.digest for row in rows}) > 1:
        sys.exit("the image depends on the number of cores: " + ", ".join(f"{r.cores}: {r.digest}" for r in rows))
    print(f"the same bytes at every count: sha256 {rows[0].digest}")
    return [row.as_dict() for row in rows]
