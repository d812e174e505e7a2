# SPDX-License-Identifier: BSD-3-Clause
"""What an MPI was built with, by its parts: the kinds of PMI it speaks and the fabrics it can use.

Open MPI keeps both in plug-ins, `mca_KIND_NAME.so`; MPICH and its relatives are linked with what they use.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kedge.base.patterns import late_pattern
from kedge.cluster.mpi import CRAY, INTEL, OPEN_MPI, PMI1, PMI2, PMIX

if TYPE_CHECKING:
    from kedge.system.views import View

UCX, LIBFABRIC, VERBS, PSM2, PORTALS = "ucx", "libfabric", "verbs", "psm2", "portals4"
_PMIX_PLUGIN = late_pattern(r"mca_pmix_(?:ext\d*x?|pmix\d*x?|cray)\Z")
_PMI_PLUGINS = {"mca_pmix_s2": PMI2, "mca_pmix_s1": PMI1}
_FABRIC_PLUGINS = {
    "mca_pml_ucx": UCX,
    "mca_osc_ucx": UCX,
    "mca_mtl_ofi": LIBFABRIC,
    "mca_btl_ofi": LIBFABRIC,
    "mca_btl_openib": VERBS,
    "mca_mtl_psm2": PSM2,
    "mca_mtl_portals4": PORTALS,
}
_FABRIC_LIBRARIES = {"libucp": UCX, "libfabric": LIBFABRIC, "libibverbs": VERBS, "libpsm2": PSM2, "libportals": PORTALS}
_PMI_LIBRARIES = {"libpmix": (PMIX,), "libpmi2": (PMI2,), "libpmi": (PMI1,), "libcraypmi": (PMI2,)}
_PMIX_FILE = late_pattern(r"libpmix\.so(?:\.\d+)*\Z")
_PMIX_TEXT = late_pattern(rb"(?:OpenPMIx|PMIx|pmix)[ -]v?(\d\.\d+\.\d+)")
_LIMIT = 16 << 20


def list_plugins(view: View, folders: Iterable[str]) -> frozenset[str]:
    """The plug-ins of an Open MPI, without `.so`; none where it has all of them inside its libraries."""
    found: set[str] = set()
    for folder in folders:
        found |= {
            name.removesuffix(".so") for name in view.names(folder) if name.startswith("mca_") and name.endswith(".so")
        }
    return frozenset(found)


def list_plugin_folders(view: View, library_folder: str) -> list[str]:
    """Where an Open MPI whose libraries are in a directory has its plug-ins: Debian has them one deeper."""
    places = [library_folder, f"{library_folder}/openmpi/lib"]
    return [f"{place}/{name}" for place in places for name in view.names(place) if re.fullmatch(r"openmpi\d*", name)]


def read_open_mpi_pmi(
    numbers: tuple[int, ...], plugins: Collection[str], needed: Collection[str]
) -> tuple[str, ...] | None:
    """PMIx since Open MPI 2, and only that since 5; PMI-2 and PMI-1 where Slurm's were at hand when it was built."""
    if numbers >= (5,) or any(name.startswith("libpmix") for name in needed):
        return (PMIX,)
    if not plugins:
        return None  # they are inside the library: its version must do
    kinds = [PMIX] if any(_PMIX_PLUGIN.match(name) for name in plugins) else []
    return tuple(kinds + [kind for name, kind in _PMI_PLUGINS.items() if name in plugins])


def read_mpich_pmi(family: str, needed: Collection[str]) -> tuple[str, ...]:
    """Return the PMIs that an MPICH was linked with; without any it has its own client of PMI-1 and PMI-2."""
    for start, kinds in _PMI_LIBRARIES.items():
        if any(re.match(rf"{start}\.so", name) for name in needed):
            return kinds if family != CRAY else (PMI2, PMI1)
    return (PMI2, PMI1)


def read_fabrics(
    family: str, plugins: Collection[str], needed: Collection[str], beside: Collection[str]
) -> tuple[str, ...]:
    """Return the fabrics that an MPI can use besides TCP; `beside` are the libraries in its own directories."""
    found = [fabric for name, fabric in _FABRIC_PLUGINS.items() if family == OPEN_MPI and name in plugins]
    libraries = [*needed, *(beside if family == INTEL else ())]
    found += [
        fabric
        for start, fabric in _FABRIC_LIBRARIES.items()
        if any(name.startswith(f"{start}.so") for name in libraries)
    ]
    return tuple(dict.fromkeys(found))


def read_pmix_version(view: View, folders: Iterable[str]) -> str:
    """The version of the libpmix in the first of these directories that has one."""
    for folder in folders:
        for name in view.names(folder):
            if _PMIX_FILE.match(name):
                match = _PMIX_TEXT.search(view.read(f"{folder}/{name}", _LIMIT) or b"")
                if match:
                    return match[1].decode()
    return ""
