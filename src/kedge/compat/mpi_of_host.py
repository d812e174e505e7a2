# SPDX-License-Identifier: BSD-3-Clause
"""The MPI of this host, what srun serves to ranks, and Slurm's PMI library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.cluster.host_mpi import find_mpi
from kedge.cluster.mpi import UNKNOWN_FAMILY, MpiFacts, MpiHost
from kedge.cluster.schedulers.mpi_types import LIST_COMMAND, parse_mpi_types
from kedge.cluster.this_host import read_glibc
from kedge.compat.contents.c_library import LIBRARY_FOLDERS
from kedge.compat.known_mpis import describe_file, recall_host
from kedge.compat.mpi.places import VARIABLES, list_libraries, list_library_folders
from kedge.errors import ProgramFailed, ProgramMissing
from kedge.system.process import run_program
from kedge.system.programs import find_program
from kedge.system.views import DirectoryView

if TYPE_CHECKING:
    from kedge.system.views import View

_PATIENCE = 5.0  # seconds for srun to answer
_PMI_FOLDERS = (*LIBRARY_FOLDERS, "/opt/slurm/lib64", "/opt/slurm/lib", "/usr/local/lib", "/opt/cray/pe/lib64")
_PMI_NAMES = ("libpmi2.so.0", "libpmi2.so")


def read_host_mpi(environ: Mapping[str, str], *, view: View | None = None, ask: bool = True) -> MpiHost:
    """Return what this host offers to ranks; with `ask` srun is asked, which takes some milliseconds."""
    tree = view or DirectoryView("/", is_still=True)
    has_slurm = find_program(LIST_COMMAND[0]) is not None
    found = _find_mpis(tree, environ, is_here=view is None)
    used = _join(find_mpi(environ), found)
    return MpiHost(
        mpi=used,
        others=tuple(mpi for mpi in found if mpi.launcher and (used is None or mpi.library != used.library)),
        plugins=list_mpi_types(environ) if ask and has_slurm else None,
        has_slurm=has_slurm,
        pmi_library=find_pmi_library(tree),
        glibc=read_glibc(),
    )


def _find_mpis(view: View, environ: Mapping[str, str], *, is_here: bool) -> tuple[MpiFacts, ...]:
    """Return the MPIs of the tree; of this host read anew only where a library or a variable is another one."""

    def read() -> tuple[MpiFacts, ...]:
        from kedge.compat.mpi.read_tree import find_mpis  # late: the MPIs of a host seldom change

        return find_mpis(view, environ)

    if not is_here:
        return read()
    states = [f"{name}={environ.get(name, '')}" for name in ("PATH", "LD_LIBRARY_PATH", *VARIABLES)]
    for folder in list_library_folders(view, environ):
        states += [describe_file(f"{folder}/{name}") for name in list_libraries(view, folder)]
    return recall_host(os.uname().nodename, "\n".join(states), environ, read)


def list_mpi_types(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The words that srun takes for --mpi; None where it does not answer."""
    try:
        done = run_program(LIST_COMMAND, environment=environ, timeout=_PATIENCE, check=False)
    except (ProgramFailed, ProgramMissing):
        return None
    if done.status:
        return None
    return tuple(parse_mpi_types((done.output + b"\n" + done.errors).decode(errors="replace"))) or None


def find_pmi_library(view: View) -> str:
    """Slurm's libpmi2.so, which Intel MPI is told of; empty where there is none."""
    places = (f"{folder}/{name}" for folder in _PMI_FOLDERS for name in _PMI_NAMES)
    return next((view.resolve(place) for place in places if view.kind(place) == "f"), "")


def _join(stated: MpiFacts | None, found: tuple[MpiFacts, ...]) -> MpiFacts | None:
    """The launcher's own words about family and version, and what the files say of the same MPI."""
    if stated is None:
        return replace(found[0], launcher="") if found else None
    if stated.family == UNKNOWN_FAMILY:
        return found[0] if found else stated
    same = next((mpi for mpi in found if mpi.abi == stated.abi and _agree(mpi, stated)), None)
    if same is None:
        return stated
    return replace(
        same,
        family=stated.family,
        version=stated.version or same.version,
        launcher=stated.launcher or same.launcher,
        source=stated.source or same.source,
    )


def _agree(one: MpiFacts, other: MpiFacts) -> bool:
    return not one.numbers or not other.numbers or one.numbers[:2] == other.numbers[:2]
