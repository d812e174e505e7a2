# SPDX-License-Identifier: BSD-3-Clause
"""The last part of 'make demo': the host and the container compared, as a table, as bars of letters, and as an SVG.

    figures.py START.JSON PICTURE.SVG

START.JSON is what 'kedge bench start' wrote. Runs in the directory of pi.sif and pi.py, and needs no other package.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROUNDS = 3  # each runs every command once: what else the host does hits all alike
PROGRAM = ("pi.sif", "python3", "/opt/pi.py")
COMMANDS = {
    "host, 1 process": ("python3", "pi.py"),
    "container, 1 process": ("kedge", "exec", *PROGRAM),
    "container, 2 ranks": ("kedge", "launch", "--ranks", "--tasks", "2", *PROGRAM),
}
TITLE = "pi: million steps per second"
COLUMNS = 40  # of the longest bar on a terminal
WIDTH, LEFT, LONGEST, LINE = 640, 190, 300, 34  # of the SVG, in pixels


@dataclass(frozen=True)
class Bar:
    """One figure, and what is written beside it."""

    name: str
    value: float
    text: str

    @property
    def is_host(self) -> bool:
        return self.name.startswith("host")


def measure_pi() -> list[Bar]:
    """The median rate of each command."""
    rates: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            rates[name].append(read_rate(command))
    host, one, two = (statistics.median(values) for values in rates.values())
    notes = ("", f" ({100 * one / host:.0f} % of the host)", f" ({two / one:.1f} x one process)")
    return [
        Bar(name, value, f"{value:.2f}{note}")
        for name, value, note in zip(COMMANDS, (host, one, two), notes, strict=True)
    ]


def read_rate(command: tuple[str, ...]) -> float:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"([\d.]+) million steps/s", done.stdout)
    if not found:
        sys.exit(f"figures: '{' '.join(command)}' printed no rate\n{done.stdout}{done.stderr}")
    return float(found[1])


def print_table(start: dict[str, float], bars: list[Bar]) -> None:
    host, one, two = (bar.text for bar in bars)
    rows = (
        ("", "HOST", "CONTAINER"),
        ("start of a program", f"{1000 * start['limit']:.1f} ms", f"{1000 * start['median']:.1f} ms"),
        ("pi, 1 process, million steps/s", host, one),
        ("pi, 2 ranks, million steps/s", "", two),
    )
    for name, outside, inside in rows:
        print(f"{name:<32}{outside:<10}{inside}")


def print_bars(bars: list[Bar]) -> None:
    print(f"\n{TITLE}")
    longest = max(bar.value for bar in bars)
    for bar in bars:
        blocks = ("░" if bar.is_host else "█") * max(1, round(COLUMNS * bar.value / longest))
        print(f"  {bar.name:<20}  {blocks} {bar.text.split(' ')[0]}")


def draw_svg(bars: list[Bar]) -> str:
    """The same bars for a browser, on white."""
    longest, height = max(bar.value for bar in bars), 60 + LINE * len(bars)
    drawn = []
    for place, bar in enumerate(bars):
        top, length = 52 + LINE * place, LONGEST * bar.value / longest
        colour = "#8a94a0" if bar.is_host else "#12808a"
        drawn += (
            f'<text x="{LEFT - 10}" y="{top + 17}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{length:.0f}" height="24" rx="3" fill="{colour}"/>',
            f'<text x="{LEFT + length + 8:.0f}" y="{top + 17}">{escape(bar.text.split(" ")[0])}</text>',
        )
    style = "text{font:14px system-ui,sans-serif;fill:#1d2329}.title{font-weight:600}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        f'<style>{style}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text x="16" y="30" class="title">{TITLE}</text>{"".join(drawn)}</svg>\n'
    )


def main() -> None:
    start_file, picture = map(Path, sys.argv[1:])
    bars = measure_pi()
    print_table(json.loads(start_file.read_text())["figures"][0], bars)
    print_bars(bars)
    picture.write_text(draw_svg(bars))
    print(f"\nPicture: {picture}")


main()
