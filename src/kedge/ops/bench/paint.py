# SPDX-License-Identifier: BSD-3-Clause
"""Writes a plot: SVG by kedge itself; PNG and PDF by the matplotlib of the image or of this host, if one has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kedge.errors import ProgramFailed, ProgramMissing, UsageError
from kedge.ops.bench.programs import ProgramPlace, find_python
from kedge.pages.drawing import Sheet, write_svg
from kedge.posix.files import write_atomically
from kedge.posix.process import run_program
from kedge.posix.start_kedge import own_command

_STARTS = {".png": b"\x89PNG", ".pdf": b"%PDF"}
_ENDINGS = (".svg", *_STARTS)
_LARGEST = 64 << 20  # bytes of a picture that a container made
# Runs with the Pythons of old images. A dollar would begin a formula.
_PAINTER = """
import io, json, sys
import matplotlib
matplotlib.use("Agg")
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
sheet = json.load(sys.stdin)
width, height, point = sheet["width"], sheet["height"], 0.72
figure = Figure(figsize=(width / 100.0, height / 100.0), dpi=100)
axes = figure.add_axes([0, 0, 1, 1])
axes.set_xlim(0, width)
axes.set_ylim(height, 0)
axes.axis("off")
for each in sheet["boxes"]:
    axes.add_patch(Rectangle(each["corner"], each["width"], each["height"], color=each["colour"], linewidth=0))
for each in sheet["strokes"]:
    xs, ys = zip(*each["points"])
    style = "--" if each["is_dashed"] else "-"
    axes.plot(xs, ys, style, color=each["colour"], linewidth=point * each["width"], zorder=2)
for each in sheet["dots"]:
    axes.add_patch(Circle(each["middle"], each["radius"], color=each["colour"], zorder=3))
for each in sheet["labels"]:
    where = {"start": "left", "middle": "center", "end": "right"}[each["anchor"]]
    axes.text(
        each["place"][0], each["place"][1], each["text"].replace("$", "\\\\$"), fontsize=point * each["size"],
        color=each["colour"], ha="center" if each["is_turned"] else where,
        va="center" if each["is_turned"] else "baseline", weight="bold" if each["is_bold"] else "normal",
        rotation=90 if each["is_turned"] else 0,
    )
made = io.BytesIO()
figure.savefig(made, format=sys.argv[1], dpi=150)
sys.stdout.buffer.write(made.getvalue())
"""


def check_plot(path: Path) -> None:
    """Raise before anything is measured where the name is not one of a plot."""
    if path.suffix.lower() not in _ENDINGS:
        raise UsageError(f"'{path}' is no name of a plot", hint=f"end it with {', '.join(_ENDINGS)}")


def paint(sheet: Sheet, path: Path, where: ProgramPlace, environ: Mapping[str, str]) -> Path:
    """Write it, and return where: `PATH.svg` where neither the image nor this host has matplotlib."""
    ending = path.suffix.lower()
    if ending in _STARTS:
        for place in (where, ProgramPlace("", (), where.seconds)):
            data = _ask(sheet, ending, place, environ)
            if data:
                write_atomically(path, data)
                return path
        path = path.with_name(path.name + ".svg")  # not NAME.svg, which may be a file that nobody named here
    write_atomically(path, write_svg(sheet))
    return path


def _ask(sheet: Sheet, ending: str, where: ProgramPlace, environ: Mapping[str, str]) -> bytes:
    """The picture that matplotlib makes there; empty where it does not."""
    command = [find_python(where, environ), "-c", _PAINTER, ending.removeprefix(".")]
    if where.image:
        command = own_command("exec", *where.options, where.image, *command)
    given = json.dumps(sheet.as_dict()).encode()
    try:
        done = run_program(command, stdin=given, environment=environ, timeout=where.seconds, check=False, name="plot")
    except (ProgramMissing, ProgramFailed):
        return b""
    is_picture = not done.status and done.output.startswith(_STARTS[ending]) and len(done.output) <= _LARGEST
    return done.output if is_picture else b""
