# SPDX-License-Identifier: BSD-3-Clause
"""Shims: the names `apptainer`, `singularity` and `docker` for kedge, and `run-singularity` for `./image.sif`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kedge.base.frozen import JsonValue
from kedge.container.shim_file import ALL_PROGRAMS, PROGRAMS, is_shim, make_shim
from kedge.errors import OutputExists, UsageError
from kedge.system.files import explained, write_atomically
from kedge.system.private_files import make_private
from kedge.system.start_kedge import own_package, own_python


@dataclass(frozen=True, slots=True)
class Shim(JsonValue):
    """One name in one directory, and what stands in its way."""

    json_nulls = ("other",)

    program: str
    path: Path
    state: str  # used, hidden, off-path or broken
    other: str = ""  # a program of this name that is not ours, elsewhere on PATH


def default_folder(environ: Mapping[str, str]) -> Path:
    """Where a user's own programs are."""
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError(
            "there is no home directory to put programs into", hint="say where: kedge shim install --dir DIR"
        )
    return Path(home) / ".local/bin"


def install_shims(
    folder: Path,
    environ: Mapping[str, str],
    programs: Sequence[str] = PROGRAMS,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> list[Shim]:
    """Write the files, or none: what is not ours is replaced only with `force`."""
    folder = folder.absolute()
    for path in (folder / program for program in programs):
        if os.path.lexists(path) and not is_shim(str(path)) and not (force and not path.is_dir()):
            raise OutputExists(
                f"{path} is there, and is not kedge's",
                context={"path": str(path)},
                hint="take another directory: kedge shim install --dir DIR (--force replaces it)",
            )
    if not dry_run:
        with explained(folder):
            make_private(folder, 0o755)
        source = str(Path(own_package()).resolve().parent)
        python, *verb = own_python()
        for program in programs:
            path = folder / program
            if path.is_symlink():
                with explained(path):
                    path.unlink()
            write_atomically(path, os.fsencode(make_shim(program, python, source, *verb)), mode=0o755)
    return [_judge(program, folder, environ) for program in programs]


def remove_shims(folder: Path, programs: Sequence[str] = ALL_PROGRAMS, *, dry_run: bool = False) -> list[Path]:
    """Remove what is ours from a directory; returns what that was."""
    ours = [path for path in (folder.absolute() / program for program in programs) if is_shim(str(path))]
    for path in ours if not dry_run else ():
        with explained(path):
            path.unlink()
    return ours


def list_shims(environ: Mapping[str, str], folder: Path | None = None) -> list[Shim]:
    """Every shim in a directory, or else in those of PATH and in the default one."""
    default = [default_folder(environ)] if environ.get("HOME", "").startswith("/") else []
    folders = [folder.absolute()] if folder is not None else [*_path_folders(environ), *default]
    return [
        _judge(program, folder, environ)
        for folder in dict.fromkeys(folders)
        for program in ALL_PROGRAMS
        if is_shim(str(folder / program))
    ]


def _judge(program: str, folder: Path, environ: Mapping[str, str]) -> Shim:
    path = folder / program
    folders = _path_folders(environ)
    found = [each / program for each in folders if os.access(each / program, os.X_OK) or each == folder]
    other = next((str(each) for each in found if each != path and not is_shim(str(each))), "")
    if os.path.lexists(path) and not _has_interpreter(path):
        state = "broken"
    elif folder not in folders:
        state = "off-path"
    else:
        state = "used" if found[0] == path else "hidden"
    return Shim(program, path, state, other)


def _has_interpreter(path: Path) -> bool:
    """Whether the Python that the file names is still there; one behind a shell is believed."""
    first = path.read_bytes().split(b"\n", 1)[0].removeprefix(b"#!").split(b" ")[0]
    return os.access(first, os.X_OK)


def _path_folders(environ: Mapping[str, str]) -> list[Path]:
    return [Path(each) for each in dict.fromkeys(environ.get("PATH", "").split(":")) if each.startswith("/")]
