# SPDX-License-Identifier: BSD-3-Clause
"""PMI: how ranks find each other. Which kinds an MPI knows, which srun offers, and which one a process was given.

A rank whose MPI finds no PMI that it knows believes that it is alone: rank 0 of 1, and nothing is said.
"""

from __future__ import annotations

from kedge.cluster.mpi import CRAY, INTEL, MPICH, MVAPICH, OPEN_MPI, PMI1, PMI2, PMIX, MpiFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What says that a launcher serves PMI to this process: PMIx by its name space, PMI-1 and PMI-2 by a descriptor or port
_PMIX_VARIABLES = ("PMIX_NAMESPACE",)
_PMI_VARIABLES = ("PMI_FD", "PMI_PORT", "PMI_CONTROL_PORT")
_CRAY_PLUGINS = ("cray_shasta", "cray_hpe_pals", "cray")


def list_pmi(mpi: MpiFacts) -> tuple[str, ...] | None:
    """The kinds that it knows, the preferred first: as its files say, else as its family and version have them."""
    if mpi.pmi is not None:
        return mpi.pmi
    if mpi.family == OPEN_MPI:
        return (PMIX,) if not mpi.numbers or mpi.numbers >= (2,) else None
    return (PMI2, PMI1) if mpi.family in (MPICH, INTEL, MVAPICH, CRAY) else None


def choose_mpi_type(mpi: MpiFacts, plugins: Sequence[str]) -> str:
    """The word for srun's --mpi that this MPI needs, of those that srun has; empty where none fits."""
    if mpi.family == CRAY:
        found = next((name for name in _CRAY_PLUGINS if name in plugins), "")
        if found:
            return found
    for kind in list_pmi(mpi) or ():
        found = _find_plugin(kind, plugins)
        if found:
            return found
    return ""


def _find_plugin(kind: str, plugins: Sequence[str]) -> str:
    if kind == PMIX:
        versions = sorted((name for name in plugins if name.startswith("pmix_v")), reverse=True)
        return "pmix" if "pmix" in plugins else next(iter(versions), "")
    return PMI2 if PMI2 in plugins else ""  # Slurm's pmi2 serves PMI-1 as well


def find_served(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds of PMI that whoever started this process serves to it."""
    kinds: tuple[str, ...] = ()
    if any(environ.get(name) for name in _PMIX_VARIABLES):
        kinds += (PMIX,)
    if any(environ.get(name) for name in _PMI_VARIABLES):
        kinds += (PMI2, PMI1)
    return kinds


def is_served(known: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether this process was given a PMI of the kinds that its MPI knows."""
    return not set(known).isdisjoint(find_served(environ))
