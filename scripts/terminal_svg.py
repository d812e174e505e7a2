# SPDX-License-Identifier: BSD-3-Clause
"""What a terminal showed, as an SVG: still, or moving by CSS alone, so that it plays where no script may run.

Every row is drawn once and appears at its time; the window rolls as a terminal scrolls. The text can be selected.
Readers who asked their system for less motion see the last picture. The window is dark on light and dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import groupby

LETTER, LINE, MARGIN, BAR = 8.4, 19, 16, 30  # pixels; the bar is the window's title bar
FONT = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace'
BACK, FRONT, FRAME = "#14191f", "#d5dde6", "#3a444f"
COLOURS = {
    "black": "#6b7683", "red": "#ff7b72", "green": "#56d364", "brown": "#e3b341", "yellow": "#e3b341",
    "blue": "#79b8ff", "magenta": "#d2a8ff", "cyan": "#56d4dd", "white": "#d5dde6",
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Letters of one look in a row."""

    column: int
    text: str
    colour: str = "default"
    bold: bool = False

    def strip(self) -> Run:
        text = self.text.lstrip()
        return Run(self.column + len(self.text) - len(text), text.rstrip(), self.colour, self.bold)


@dataclass(frozen=True)
class Row:
    """A row, and the second when it appears."""

    time: float
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Film:
    """All rows that the terminal ever showed; `window` of them are seen at a time."""

    rows: tuple[Row, ...]
    columns: int
    window: int
    seconds: float


def draw_still(film: Film) -> str:
    """All rows at once."""
    return _draw_window(film, len(film.rows), "\n".join(map(_draw_row, film.rows, range(len(film.rows)))), "")


def draw_film(film: Film) -> str:
    """Rows in their time, for ever."""
    window = min(film.window, len(film.rows))
    drawn, rules = [], []
    numbered = list(enumerate(film.rows))
    rolls = ["0%{transform:none}"]
    for index, (moment, group) in enumerate(groupby(numbered, key=lambda pair: round(pair[1].time, 1))):
        rows = list(group)
        percent = f"{100 * moment / film.seconds:.2f}%"
        drawn.append(f'<g class="s a{index}">{"".join(_draw_row(row, number) for number, row in rows)}</g>\n')
        rules.append(
            f".a{index}{{animation-name:k{index}}}@keyframes k{index}{{0%{{opacity:0}}{percent}{{opacity:1}}}}"
        )
        hidden = max(0, rows[-1][0] + 1 - window)
        if hidden:
            rolls.append(f"{percent}{{transform:translateY(-{hidden * LINE}px)}}")
    last = (len(film.rows) - window) * LINE
    style = (
        f".s,.roll{{animation:{film.seconds:.1f}s step-end infinite}}.roll{{transform:translateY(-{last}px);"
        f"animation-name:roll}}@keyframes roll{{{''.join(rolls)}}}{''.join(rules)}"
        "@media(prefers-reduced-motion:reduce){.s,.roll{animation:none!important}}"
    )
    return _draw_window(film, window, f'<g class="roll">{"".join(drawn)}</g>', style)


def _draw_window(film: Film, rows: int, content: str, style: str) -> str:
    width, inner = round(film.columns * LETTER + 2 * MARGIN), rows * LINE + 6
    height = inner + BAR + MARGIN
    colours = "".join(f".{name}{{fill:{value}}}" for name, value in COLOURS.items() if f'"{name}' in content)
    dots = "".join(f'<circle cx="{MARGIN + 5 + 18 * place}" cy="16" r="5" fill="{FRAME}"/>' for place in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<style>text{{font:14px {FONT};fill:{FRONT};white-space:pre}}.b{{font-weight:700}}{colours}{style}</style>"
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{BACK}" stroke="{FRAME}"/>{dots}'
        f'<svg x="{MARGIN}" y="{BAR}" width="{width - 2 * MARGIN}" height="{inner}">{content}</svg></svg>\n'
    )


def _draw_row(row: Row, number: int) -> str:
    return "".join(_draw_run(run, number) for run in row.runs)


def _draw_run(run: Run, number: int) -> str:
    name = run.colour.removeprefix("bright")
    looks = [*([name] if name in COLOURS else []), *(["b"] if run.bold else [])]
    look = f' class="{" ".join(looks)}"' if looks else ""
    place = f'x="{run.column * LETTER:.4g}" y="{number * LINE + 15}"'
    length = f'textLength="{len(run.text) * LETTER:.4g}" lengthAdjust="spacingAndGlyphs"'
    return f"<text {place} {length}{look}>{escape(run.text, quote=False)}</text>"
