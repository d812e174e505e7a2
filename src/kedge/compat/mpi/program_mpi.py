# SPDX-License-Identifier: BSD-3-Clause
"""Which MPI library a program of a tree loads: what it needs by name, found as the dynamic loader would.

A program may need MPI through a library of its own, and a Python script through mpi4py: both are followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.compat.contents.c_library import LIBRARY_FOLDERS
from kedge.compat.mpi.places import list_loader_folders
from kedge.errors import KedgeError
from kedge.image.formats.elf import ElfObject, parse_elf

if TYPE_CHECKING:
    from kedge.system.views import View

_MPI_NAME = re.compile(r"lib(?:mpi|mpich|mpi_cray|mpi_gnu_\d+)\.so\.\d+\Z")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON = re.compile(r"python[\d.]*\Z")
_LARGEST = 64 << 20
_MOST_OBJECTS = 300


@frozen
class NeededMpi:
    """The name under which a program needs its MPI, and the file that it gets; empty where there is none."""

    name: str = ""
    path: str = ""


def find_needed_mpi(view: View, program: str, environment: Mapping[str, str]) -> NeededMpi:
    """What a program, given by its path or as a word of PATH, needs; nothing for one without MPI."""
    path = find_in_path(view, program, environment)
    if not path:
        return NeededMpi()
    data = view.read(path, _LARGEST) or b""
    if data.startswith(b"#!"):
        words = data[2:200].split(b"\n")[0].decode(errors="replace").split()
        path = find_in_path(view, words[-1], environment) if words else ""
    if _PYTHON.match(view.resolve(path).rpartition("/")[2]) if path else False:
        return next((_search(view, module, environment) for module in _list_mpi4py(view)), NeededMpi())
    return _search(view, path, environment) if path else NeededMpi()


def find_in_path(view: View, program: str, environment: Mapping[str, str]) -> str:
    """Where a shell in the tree finds a program; empty where it does not."""
    if "/" in program:
        return program if view.kind(program) == "f" else ""
    folders = (environment.get("PATH") or _DEFAULT_PATH).split(":")
    places = (f"{folder.rstrip('/')}/{program}" for folder in folders if folder.startswith("/"))
    return next((place for place in places if view.is_executable(place)), "")


def find_needed_by(view: View, elf: ElfObject, environment: Mapping[str, str]) -> NeededMpi:
    """Find the MPI of a program that is not in the tree, but will be mounted into it."""
    return _search(view, "/", environment, elf)


def _search(view: View, path: str, environment: Mapping[str, str], first: ElfObject | None = None) -> NeededMpi:
    """Search what the program loads, nearest first, until one of the libraries is MPI."""
    known = [*environment.get("LD_LIBRARY_PATH", "").split(":"), *list_loader_folders(view), *LIBRARY_FOLDERS]
    waiting, seen = [path], {path}
    while waiting and len(seen) < _MOST_OBJECTS:
        here = waiting.pop(0)
        elf = first if first is not None and here == path else _parse(view, here)
        if elf is None:
            continue
        folders = [*_list_own(here, elf), *known]
        for name in elf.needed:
            place = next(
                (f"{folder}/{name}" for folder in folders if folder and view.kind(f"{folder}/{name}") == "f"), ""
            )
            if _MPI_NAME.match(name):
                return NeededMpi(name, view.resolve(place) if place else "")
            if place and place not in seen and not name.startswith(("libc.so", "libm.so", "ld-linux", "libpthread")):
                seen.add(place)
                waiting.append(place)
    return NeededMpi()


def _list_own(path: str, elf: ElfObject) -> list[str]:
    origin = path.rpartition("/")[0]
    return [folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for folder in (*elf.rpath, *elf.runpath)]


def _parse(view: View, path: str) -> ElfObject | None:
    try:
        return parse_elf(view.read(path, _LARGEST) or b"", path)
    except KedgeError:
        return None


def _list_mpi4py(view: View) -> Iterator[str]:
    """The compiled parts of mpi4py, of all Pythons of the tree."""
    for library in ("/opt/conda/lib", "/usr/local/lib", "/usr/lib"):
        for python in view.names(library):
            if not re.match(r"python3(?:\.\d+)?\Z", python):
                continue
            for packages in ("site-packages", "dist-packages"):
                folder = f"{library}/{python}/{packages}/mpi4py"
                for name in view.names(folder):
                    if re.match(r"MPI\..*so\Z", name):
                        yield f"{folder}/{name}"
