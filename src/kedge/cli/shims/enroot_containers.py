# SPDX-License-Identifier: BSD-3-Clause
"""`enroot list` and `enroot remove`: the directories that are containers, and the processes in them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kedge.cli.container import print_text
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained

_COLUMNS = ("NAME", "PID", "COMM", "STATE", "STARTED", "TIME", "MNTNS", "USERNS", "COMMAND")


def list_containers(folder: str, *, is_fancy: bool) -> int:
    """Print the names, or a table with the processes of each."""
    names = sorted(path.name for path in Path(folder).iterdir() if path.is_dir()) if Path(folder).is_dir() else []
    if not is_fancy:
        return print_text("".join(f"{name}\n" for name in names))
    processes = list(_find_processes())
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for name in names:
        found = [row for image, row in processes if image == f"{folder}/{name}"]
        rows += [(name if number == 0 else "", *row) for number, row in enumerate(found)] or [(name,)]
    widths = [max(len(row[at]) for row in rows if len(row) > at) for at in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return print_text("".join(f"{line}\n" for line in lines))


def remove_containers(folders: list[str], *, is_asked: bool) -> int:
    """Delete containers, each after a question where one is wanted."""
    for folder in folders:
        if is_asked:
            sys.stderr.write(f"Do you really want to delete {folder}? [y/N] ")
            sys.stderr.flush()
            reply = sys.stdin.readline()
            if not reply:
                return 1
            if reply.strip() not in ("y", "Y"):
                continue
        with explained(folder):
            remove_tree(Path(folder))
    return 0


def _find_processes() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The user's processes in containers, each with the path of its image, which its variables say."""
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            image = next((each[20:] for each in variables if each.startswith(b"APPTAINER_CONTAINER=")), b"")
            if image and (path / "ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
                yield os.fsdecode(image), _describe(path)
        except OSError:
            continue  # another user's, or gone


def _describe(path: Path) -> tuple[str, ...]:
    comm, _, rest = (path / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
    fields = rest.split()
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    seconds = max(uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK"), 0)
    began = time.strftime("%H:%M", time.localtime(time.time() - seconds))
    spaces = [str((path / "ns" / name).readlink()).partition("[")[2].rstrip("]") for name in ("mnt", "user")]
    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    lasted = f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"
    return (path.name, comm, fields[0], began, lasted, *spaces, command)
