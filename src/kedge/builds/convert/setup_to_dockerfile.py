# SPDX-License-Identifier: BSD-3-Clause
"""%setup scripts that only make directories and copy files into the image, as COPY and RUN."""

from __future__ import annotations

import re
import shlex

from kedge.builds.convert.scripts_for_dockerfiles import join_lines
from kedge.builds.definition.definition import Script

_ROOT = re.compile(r"\$(?:\{(?:SINGULARITY|APPTAINER)_ROOTFS\}|(?:SINGULARITY|APPTAINER)_ROOTFS\b)")
_MARK = "\x01"
_OPERATORS = re.compile(r"[$`;&|<>(){}~#]")


def convert_setup(script: Script) -> list[str] | None:
    """The lines of a Dockerfile; None where the script does anything else on the host."""
    lines: list[str] = []
    for _, line in join_lines(script):
        content = line.strip()
        if not content or content.startswith("#"):
            lines += [content] if content else []
            continue
        converted = _convert_line(_ROOT.sub(_MARK, content))
        if converted is None:
            return None
        lines.append(converted)
    return lines


def _convert_line(line: str) -> str | None:
    if _OPERATORS.search(line):
        return None
    try:
        program, *words = shlex.split(line)
    except ValueError:
        return None
    flags = [word for word in words if word.startswith("-")]
    paths = [word for word in words if not word.startswith("-")]
    if program in ("mkdir", "touch") and paths and all(path.startswith(f"{_MARK}/") for path in paths):
        return f"RUN {shlex.join([program, *flags, *(path[1:] for path in paths)])}"
    if program == "cp" and len(paths) > 1 and paths[-1].startswith(_MARK) and _MARK not in "".join(paths[:-1]):
        return _copy(paths[:-1], paths[-1][1:] or "/", is_deep=any(set(flag) & set("rRa") for flag in flags))
    return None


def _copy(sources: list[str], target: str, *, is_deep: bool) -> str | None:
    """COPY; a directory goes into one that is there by its own name, as with cp."""
    if any(source.startswith(("/", "..")) or len(source.split()) != 1 for source in sources):
        return None
    if is_deep and target.endswith("/") and len(sources) == 1:
        target += sources[0].rstrip("/").rpartition("/")[2]
    if len(sources) > 1 and not target.endswith("/"):
        target += "/"
    return f"COPY {' '.join(sources)} {target}"
