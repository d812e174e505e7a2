# SPDX-License-Identifier: BSD-3-Clause
"""The MPI that an image's config or the tables name, where its files are not at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.versions import order
from kedge.cluster.mpi import CRAY, INTEL, MPICH, MVAPICH, OPEN_MPI, PARASTATION, UNKNOWN_FAMILY, MpiFacts
from kedge.compat.mpi.components import UCX

if TYPE_CHECKING:
    from kedge.compat.traits import ImageTraits

_FAMILIES = {
    "open mpi": OPEN_MPI,
    "openmpi": OPEN_MPI,
    "hpc-x": OPEN_MPI,
    "hpcx": OPEN_MPI,
    "mpich": MPICH,
    "intel mpi": INTEL,
    "intel(r) mpi": INTEL,
    "mvapich": MVAPICH,
    "cray mpich": CRAY,
    "parastation": PARASTATION,
}


def read_stated_mpi(traits: ImageTraits) -> MpiFacts | None:
    """What the config says; None where it names none."""
    if not traits.mpi.value:
        return None
    mpi = parse_title(traits.mpi.value, traits.mpi.source)
    return MpiFacts(
        mpi.family,
        mpi.version,
        needs_pmi_library=mpi.family == INTEL,
        fabrics=(UCX,) if traits.ucx.value else None,
        glibc=traits.glibc.value,
        build=f"HPC-X {traits.hpcx.value}" if traits.hpcx.value else "",
        source=traits.mpi.source,
    )


def parse_title(title: str, source: str = "") -> MpiFacts:
    """`Intel MPI 2021.9` as family and version."""
    lower = title.strip().lower()
    family = next((family for word, family in _FAMILIES.items() if lower.startswith(word)), UNKNOWN_FAMILY)
    if lower.startswith(("hpc-x", "hpcx")):  # its number is not that of its Open MPI
        return MpiFacts(family, build=title.strip(), source=source)
    version = next((word.lstrip("v") for word in title.split() if order(word.lstrip("v"))), "")
    return MpiFacts(family, version, source=source)
