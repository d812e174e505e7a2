# SPDX-License-Identifier: BSD-3-Clause
"""A step that failed, for people: the end of its output, and the lines of the recipe around it with a mark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.build_steps import FailedStep, name_step
from kedge.cli.redaction import escape_controls, escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kedge.builds.request import BuildRequest
    from kedge.errors import KedgeError

_AROUND = 2  # lines of the recipe before and after the one that failed
_SECTION = 12  # lines of a section of a definition file
_LONGEST_INSTRUCTION = 30  # lines of it that are shown
_WIDEST = 500  # characters of a line
_LARGEST = 64 * 1024 * 1024


def describe_failure(
    failed: FailedStep, problem: KedgeError, request: BuildRequest, paint: Callable[[str, str], str]
) -> Iterator[str]:
    """The lines to show before the error itself."""
    outcome = failed.outcome
    head = f"{name_step(outcome.label)} {escape_line(outcome.label.text)}"
    yield f"{paint('failed', 'bad')} after {outcome.seconds:.1f}s: {head}"
    for line in failed.lines:
        yield f"  {paint('|', 'dim')} {line}".rstrip()
    yield from show_excerpt(problem.context, request, paint)


def describe_problem(problem: KedgeError, request: BuildRequest, paint: Callable[[str, str], str]) -> Iterator[str]:
    """Describe what failed outside of steps, such as a program that makes a base."""
    for line in problem.context.get("output", "").splitlines():
        yield f"  {paint('|', 'dim')} {_show_line(line)}".rstrip()
    yield from show_excerpt(problem.context, request, paint)


def show_excerpt(context: dict[str, str], request: BuildRequest, paint: Callable[[str, str], str]) -> Iterator[str]:
    """`Dockerfile:12` and the lines around it; nothing where the error has no place in the recipe."""
    file, number = context.get("file", ""), context.get("line", "")
    if not file or not number.isdigit():
        return
    lines = _read_recipe(file, request)
    line = int(number)
    last = _find_end(lines, line)
    if not 1 <= line <= len(lines):
        return
    yield f"{escape_line(file)}:{line}"
    for current in range(max(1, line - _AROUND), _find_last_shown(lines, line, last) + 1):
        mark = ">" if line <= current <= last else " "
        shown = f"{mark} {current:>4} | {_show_line(lines[current - 1])}".rstrip()
        yield paint(shown, "bad") if mark == ">" else shown


def _read_recipe(file: str, request: BuildRequest) -> list[str]:
    """The recipe's lines; none where it cannot be read any more."""
    if request.text is not None:
        return request.text.decode("utf-8", "replace").splitlines()
    for path in (Path(request.spec), Path(file)):
        if path.name == Path(file).name:
            try:
                with path.open("rb") as stream:
                    return stream.read(_LARGEST).decode("utf-8", "replace").splitlines()
            except OSError:
                continue
    return []


def _find_last_shown(lines: list[str], line: int, last: int) -> int:
    """Where the excerpt ends; of a section, whose heading is the place, some of its lines are shown."""
    if not lines[line - 1].lstrip().startswith("%"):
        return min(len(lines), last + _AROUND, line + _LONGEST_INSTRUCTION)
    end = line
    while end < min(len(lines), line + _SECTION) and not lines[end].startswith("%"):
        end += 1
    while end > line and not lines[end - 1].strip():
        end -= 1
    return end


def _show_line(line: str) -> str:
    text = line[: _WIDEST + 1].expandtabs(4)
    return escape_controls(text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…")


def _find_end(lines: list[str], line: int) -> int:
    """The last line of an instruction that goes on behind a backslash."""
    while line < len(lines) and lines[line - 1].rstrip().endswith("\\"):
        line += 1
    return line
