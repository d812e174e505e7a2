# SPDX-License-Identifier: BSD-3-Clause
"""All MPIs of a tree, an image's or this host's, by its files alone: nothing is run.

Family by the library itself; version by header, wrapper data, pkg-config, package database, texts in the library and
its name, in this order; PMI and fabrics by its plug-ins and by what it is linked with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.base.versions import order
from kedge.cluster.mpi import INTEL, OPEN_MPI, MpiFacts
from kedge.compat.contents.c_library import read_c_library
from kedge.compat.mpi.components import (
    list_plugin_folders,
    list_plugins,
    read_fabrics,
    read_mpich_pmi,
    read_open_mpi_pmi,
    read_pmix_version,
)
from kedge.compat.mpi.find_launcher import find_own_launcher, find_preferred
from kedge.compat.mpi.find_version import find_version, read_header
from kedge.compat.mpi.identify import identify_library
from kedge.compat.mpi.places import SHARED_PREFIXES, list_libraries, list_library_folders, list_prefixes
from kedge.compat.traits import Fact
from kedge.errors import KedgeError
from kedge.image.clean_config import clean_text
from kedge.image.formats.elf import ElfObject, parse_elf

if TYPE_CHECKING:
    from kedge.system.views import View

_LARGEST = 96 << 20  # bytes of a library; that of MPICH has 37 MB with its symbols
_MOST = 12  # MPIs of one tree
_HANDED_ON = ("OPAL_PREFIX", "I_MPI_ROOT", "I_MPI_PMI_LIBRARY", "MPI_HOME", "UCX_MODULE_DIR", "FI_PROVIDER_PATH")


def find_mpis(view: View, environment: Mapping[str, str]) -> tuple[MpiFacts, ...]:
    """The MPIs of a tree, the one that programs use first; `environment` has the variables that they get."""
    glibc = read_c_library(view).value
    found = list(_list_mpis(view, environment))[:_MOST] or _list_headers(view, environment)
    return tuple(find_preferred(view, environment, [replace(mpi, glibc=glibc) for mpi in found]))


def _list_headers(view: View, environment: Mapping[str, str]) -> list[MpiFacts]:
    """Return the MPIs of a tree by what their headers say, where no library can be read."""
    prefixes = [prefix for prefix in list_prefixes(environment) if prefix]
    for path in (f"{prefix}/include/{name}" for prefix in prefixes for name in ("mpi.h", "openmpi/mpi.h")):
        family, version = read_header(view, path)
        if family:
            return [MpiFacts(family, clean_text(version, 60), source=f"file {path}")]
    return []


def _list_mpis(view: View, environment: Mapping[str, str]) -> Iterator[MpiFacts]:
    seen: set[str] = set()
    for folder in list_library_folders(view, environment):
        for name in reversed(list_libraries(view, folder)):
            path = view.resolve(f"{folder}/{name}")
            if path not in seen:
                seen.add(path)
                mpi = _read_mpi(view, path, environment)
                if mpi is not None:
                    yield mpi


def _read_mpi(view: View, path: str, environment: Mapping[str, str]) -> MpiFacts | None:
    data = view.read(path, _LARGEST) or b""
    elf = _parse(data, path)
    if elf is None:
        return None
    family, stated = identify_library(elf, data)
    folder, _, name = path.rpartition("/")
    prefix = _find_prefix(folder)
    known = Fact(stated, f"file {path}") if stated else find_version(view, family, path, prefix)
    mpi = MpiFacts(
        family,
        clean_text(known.value, 60),
        library=path,
        soname=elf.soname or name,
        prefix=prefix,
        needs_pmi_library=family == INTEL,
        needs_glibc=find_newest_glibc(elf),
        build=_name_build(prefix, environment),
        variables=tuple((key, environment[key]) for key in _HANDED_ON if environment.get(key)),
        source=known.source or f"file {path}",
    )
    return _add_components(view, replace(mpi, launcher=find_own_launcher(view, mpi, environment)), elf, folder)


def _add_components(view: View, mpi: MpiFacts, elf: ElfObject, folder: str) -> MpiFacts:
    plugin_folders = list_plugin_folders(view, folder) if mpi.family == OPEN_MPI else []
    plugins = list_plugins(view, plugin_folders)
    needed = _list_needed(view, folder, elf)
    beside = view.names(f"{mpi.prefix}/libfabric/lib") + view.names(f"{mpi.prefix}/opt/mpi/libfabric/lib")
    pmi = (
        read_open_mpi_pmi(mpi.numbers, plugins, needed)
        if mpi.family == OPEN_MPI
        else read_mpich_pmi(mpi.family, needed)
    )
    needs = [find_newest_glibc(part) for part in _read_parts(view, folder, elf)]
    return replace(
        mpi,
        pmi=pmi if mpi.abi else None,
        pmix_version=read_pmix_version(view, (folder, f"{mpi.prefix}/lib")) if pmi and "pmix" in pmi else "",
        fabrics=read_fabrics(mpi.family, plugins, needed, beside),
        needs_glibc=max((mpi.needs_glibc, *needs), key=order),
    )


def _list_needed(view: View, folder: str, elf: ElfObject) -> list[str]:
    """What the library needs, and what those of its parts need that lie beside it."""
    return [*elf.needed, *(name for part in _read_parts(view, folder, elf) for name in part.needed)]


def _read_parts(view: View, folder: str, elf: ElfObject) -> list[ElfObject]:
    names = [name for name in elf.needed if name.startswith(("libopen-", "libopal", "libmpi", "libmpl", "libopa"))]
    parts = (_parse(view.read(f"{folder}/{name}", _LARGEST) or b"", name) for name in names[:8])
    return [part for part in parts if part is not None]


def _parse(data: bytes, path: str) -> ElfObject | None:
    try:
        return parse_elf(data, path)
    except KedgeError:
        return None


def find_newest_glibc(elf: ElfObject) -> str:
    """The newest symbols that an object asks of glibc: `2.34`."""
    versions = [name.removeprefix("GLIBC_") for name in elf.needed_versions if name.startswith("GLIBC_")]
    return max((version for version in versions if order(version)), key=order, default="")


def _find_prefix(folder: str) -> str:
    """/opt/hpcx/ompi of /opt/hpcx/ompi/lib; empty where the directory is the system's."""
    match = re.match(r"(.*?)/(?:lib64|lib|lib-abi-mpich)(?:/release(?:_mt)?)?\Z", folder)
    prefix = match[1] if match else ""
    return "" if prefix in SHARED_PREFIXES else prefix


def _name_build(prefix: str, environment: Mapping[str, str]) -> str:
    if "/hpcx" in prefix or "hpcx" in environment.get("OPAL_PREFIX", ""):
        return clean_text(f"HPC-X {environment.get('HPCX_VERSION', '')}".strip(), 40)
    return ""
