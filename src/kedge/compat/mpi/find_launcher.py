# SPDX-License-Identifier: BSD-3-Clause
"""Which of several MPIs is used, and with which program each starts its ranks: by PATH, as a shell would find them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kedge.cluster.launchers.known import list_launchers
from kedge.cluster.mpi import MPICH, OPEN_MPI, MpiFacts

if TYPE_CHECKING:
    from kedge.system.views import View

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OPEN_MPI_PROGRAMS = ("orterun", "prterun", "prun", "orted")
_MOST = 100


def find_own_launcher(view: View, mpi: MpiFacts, environment: Mapping[str, str]) -> str:
    """The mpirun or mpiexec that belongs to an MPI; empty where there is none."""
    folders = [f"{mpi.prefix}/bin"] if mpi.prefix else _list_path(environment)
    suffixes = {OPEN_MPI: ("", ".openmpi"), MPICH: ("", ".mpich", ".hydra")}.get(mpi.abi, ("",))
    for folder in folders:
        for name in (f"{stem}{suffix}" for suffix in suffixes for stem in list_launchers("library")):
            path = f"{folder}/{name}"
            if view.is_executable(path) and (mpi.prefix or _guess_family(view, path) == mpi.abi):
                return path
    return ""


def find_preferred(view: View, environment: Mapping[str, str], mpis: Sequence[MpiFacts]) -> list[MpiFacts]:
    """Return the MPIs, the one first whose mpirun a shell finds first; where none is found their order stays."""
    for folder in _list_path(environment):
        for name in list_launchers("library"):
            path = f"{folder}/{name}"
            if view.is_executable(path):
                return sorted(mpis, key=lambda mpi: not _is_of(view, path, mpi))
    return list(mpis)


def _is_of(view: View, path: str, mpi: MpiFacts) -> bool:
    if mpi.prefix:
        return view.resolve(path).startswith(f"{mpi.prefix}/")
    return _guess_family(view, path) == mpi.abi


def _guess_family(view: View, path: str) -> str:
    """The family of a launcher, by what its name means in the end: orterun, mpiexec.hydra."""
    name = view.resolve(path).rpartition("/")[2]
    if name in _OPEN_MPI_PROGRAMS or name.endswith(".openmpi"):
        return OPEN_MPI
    return MPICH if name.endswith((".hydra", ".mpich", ".gforker")) else ""


def _list_path(environment: Mapping[str, str]) -> list[str]:
    path = environment.get("PATH") or _DEFAULT_PATH
    return [folder.rstrip("/") for folder in path.split(":") if folder.startswith("/")][:_MOST]
