# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kedge.cli.bench_record import make_plot
from kedge.errors import MissingExtra, UsageError
from kedge.ops.bench.record import BenchRecord, Figure, Machine
from kedge.pages.bench_plot import check_plot
from tests.builders.pypi_tools import require_tool
from tests.requirements import REPOSITORY

MACHINE = Machine("node01", "EPYC", 16, 128 << 30, ("NVIDIA H200",), "580.95.05")
LINES = BenchRecord(
    "matmul",
    tuple(
        Figure(f"{size} {kind}", "GFLOP/s", (0.9 * rate, rate, rate), 2 * rate, "rate", kind, size)
        for kind in ("float32", "bf16")
        for size, rate in ((256, 1e3), (1024, 2e4))
    ),
    MACHINE,
    "pytorch.sif",
)
BARS = BenchRecord("start", (Figure("kedge exec", "s", (0.02, 0.03, 0.04), 0.002, "outside"),), MACHINE)


# matplotlib lies in an environment of its own; in a process of its own it stays out of the other tests
DRAW = """
import subprocess
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from kedge.pages.bench_plot import draw_plot
from tests.unit.pages import test_bench_plot as plots
for name in ("a.png", "a.svg"):
    draw_plot(plots.make_plot(getattr(plots, sys.argv[2])), Path(sys.argv[3], name))
"""


def test_bench_plot_is_lines_or_bars() -> None:
    lines, bars = make_plot(LINES), make_plot(BARS)
    assert (lines.places, [line.name for line in lines.lines]) == ("rows of the matrices", ["float32", "bf16"])
    assert [point.place for point in lines.lines[0].points] == [256, 1024]
    assert (bars.places, bars.unit) == ("", "seconds")
    assert "1 x NVIDIA H200, driver 580.95.05" in lines.note


@pytest.mark.parametrize(("record", "unit"), [("LINES", "GFLOP/s"), ("BARS", "seconds")])
def test_bench_plot_as_png_and_svg(tmp_path: Path, record: str, unit: str) -> None:
    (packages,) = require_tool("training").parent.glob("lib/python3*/site-packages")
    command = [sys.executable, "-c", DRAW, str(packages), record, str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for name, begin in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        assert (tmp_path / name).read_bytes().startswith(begin)
    text = (tmp_path / "a.svg").read_text()
    assert "NVIDIA H200" in text
    assert unit in text


def test_bench_plot_needs_a_known_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no name of a plot"):
        check_plot(tmp_path / "a.gif")


def test_bench_plot_says_which_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra) as problem:
        check_plot(tmp_path / "a.png")
    assert problem.value.hint == "pip install matplotlib"
