# SPDX-License-Identifier: BSD-3-Clause
"""The MPIs of an image, wherever it is: by its files where it is on this host, else by its config. Nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.cluster.mpi import MpiFacts, MpiImage
from kedge.compat.contents.c_library import read_c_library
from kedge.compat.mpi.program_mpi import NeededMpi, find_needed_by, find_needed_mpi
from kedge.compat.mpi.read_tree import find_mpis
from kedge.compat.mpi.stated import read_stated_mpi
from kedge.errors import KedgeError
from kedge.image.formats.elf import read_elf
from kedge.image.inspect import inspect_path
from kedge.image.open_view import open_view, read_file_environment
from kedge.system.files import explained

if TYPE_CHECKING:
    from kedge.base.reference import Reference
    from kedge.compat.tables.load import Tables
    from kedge.image.workplace import Workplace
    from kedge.system.views import View


def read_image_mpi(
    reference: Reference, workplace: Workplace, tables: Tables, *, program: str = "", offline: bool = False
) -> MpiImage:
    """The MPIs of the image that `reference` names; with `program` the one first that this program uses."""
    from kedge.compat.image_traits import read_image_traits  # late: a launch has a file, and needs no registry
    from kedge.image.sources.classify import classify

    source = classify(reference)
    if source.path is not None:
        return read_path_mpi(source.path, program=program)
    traits = read_image_traits(reference, workplace, tables, offline=offline)
    stated = read_stated_mpi(traits)
    note = "only the image's config was read: pull the image to read its files"
    return MpiImage(traits.name, (stated,) if stated else (), glibc=traits.glibc.value, notes=(note,))


def read_path_mpi(path: Path, *, program: str = "") -> MpiImage:
    """The MPIs of a SIF, SquashFS file or directory."""
    environment = read_file_environment(inspect_path(path))
    with explained(path), open_view(path) as (view, _):
        if view is None:
            return MpiImage(str(path), notes=("its files cannot be read: it is encrypted, or no SquashFS",))
        return read_view_mpi(str(path), view, environment, program=program)


def read_view_mpi(name: str, view: View, environment: Mapping[str, str], *, program: str = "") -> MpiImage:
    """Return the MPI of a tree that is open."""
    mpis = find_mpis(view, environment)
    notes: list[str] = []
    needed = ""
    if program:
        found = find_needed_mpi(view, program, environment)
        if not found.name:
            found = _find_mounted(view, program, environment)
        needed = found.name
        mpis, notes = _order(mpis, found.path, needed, program)
    if len(mpis) > 1:
        others = ", ".join(f"{mpi.title} ({mpi.library})" for mpi in mpis[1:])
        notes.append(f"the image has other MPIs as well: {others}")
    return MpiImage(name, mpis, read_c_library(view).value, is_searched=True, needed=needed, notes=tuple(notes))


def _find_mounted(view: View, program: str, environment: Mapping[str, str]) -> NeededMpi:
    """A program of this host that the container will see, such as one in the current directory."""
    if "/" not in program or not Path(program).is_file():
        return NeededMpi()
    try:
        elf = read_elf(Path(program))
    except KedgeError:
        return NeededMpi()
    return find_needed_by(view, elf, environment) if elf is not None else NeededMpi()


def _order(mpis: Sequence[MpiFacts], path: str, needed: str, program: str) -> tuple[tuple[MpiFacts, ...], list[str]]:
    """The one first that the program loads."""
    if not needed:
        return tuple(mpis), []
    if not path:
        return (), [f"{program} needs {needed}, which the image does not have"]
    ordered = sorted(mpis, key=lambda mpi: (mpi.library != path, mpi.soname != needed))
    if ordered and ordered[0].library == path:
        ordered[0] = replace(ordered[0], source=f"{ordered[0].source}; {program} loads it")
    return tuple(ordered), []
