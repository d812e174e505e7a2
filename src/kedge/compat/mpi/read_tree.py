# SPDX-License-Identifier: BSD-3-Clause
"""All MPIs of a tree, an image's or this host's, by its files alone: nothing is run.

Family by the library itself; version by header, wrapper data, pkg-config, package database, texts in the library and
its name, in this order; PMI and fabrics by its plug-ins and by what it is linked with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.base.versions import order
from kedge.cluster.host_mpi import read_definitions
from kedge.cluster.launchers.known import list_launchers
from kedge.cluster.mpi import CRAY, INTEL, MPICH, MVAPICH, OPEN_MPI, PARASTATION, UNKNOWN_FAMILY, MpiFacts
from kedge.compat.contents.c_library import TRIPLETS, read_c_library
from kedge.compat.mpi.components import (
    list_plugin_folders,
    list_plugins,
    read_fabrics,
    read_mpich_pmi,
    read_open_mpi_pmi,
    read_pmix_version,
)
from kedge.compat.mpi.places import SHARED_PREFIXES, list_libraries, list_library_folders, list_prefixes
from kedge.compat.packages.rpm_database import list_rpm_packages
from kedge.compat.packages.system_packages import list_apk_packages, list_conda_packages, list_dpkg_packages
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


# Which of several MPIs is used, and with which program each starts its ranks: by PATH, as a shell would find them.

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OPEN_MPI_PROGRAMS = ("orterun", "prterun", "prun", "orted")
_FIND_LAUNCHER_MOST = 100


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
    return [folder.rstrip("/") for folder in path.split(":") if folder.startswith("/")][:_FIND_LAUNCHER_MOST]


# The version of an MPI whose library was found: each place that may tell it, the surest first.

_HEADER = 256 << 10
_SMALL = 64 << 10
_FIND_VERSION_LARGEST = 16 << 20
_WRAPPER = "share/openmpi/mpicc-wrapper-data.txt"
_PKG_CONFIG = {OPEN_MPI: ("ompi", "ompi-c"), MPICH: ("mpich",), MVAPICH: ("mvapich2", "mvapich"), CRAY: ("mpich",)}


def find_version(view: View, family: str, path: str, prefix: str) -> Fact:
    """The version and where it is from; `path` is the library."""
    folder, _, name = path.rpartition("/")
    return next((fact for fact in _list_versions(view, family, folder, prefix, name) if fact.value), Fact())


def _list_versions(view: View, family: str, folder: str, prefix: str, name: str) -> Iterator[Fact]:
    yield from _read_headers(view, family, folder, prefix)
    yield from _read_wrappers(view, family, folder, prefix)
    yield from _read_pkg_config(view, family, folder, prefix)
    if family == OPEN_MPI:
        yield from _read_library_text(view, folder)
    if family == INTEL:
        match = re.search(r"/mpi/(\d{4}(?:\.\d+)+)(?:/|\Z)", prefix)
        yield Fact(match[1], f"directory {prefix}") if match else Fact()
    if not prefix:
        yield _read_packages(view, family)
    yield Fact(read_file_version(name), f"file {folder}/{name}")


def read_header(view: View, path: str) -> tuple[str, str]:
    """Family and version of an mpi.h; empty where there is none."""
    text = (view.read(path, _HEADER) or b"").decode("utf-8", "replace")
    return next(read_definitions(text), ("", "")) if text else ("", "")


def _read_headers(view: View, family: str, folder: str, prefix: str) -> Iterator[Fact]:
    word = "openmpi" if family == OPEN_MPI else "mpich"
    places = [f"{prefix}/include", f"{prefix}/include/openmpi", f"{folder}/{word}/include"]
    places += [f"/usr/include/{triplet}/{word}" for triplet in TRIPLETS]
    places += [f"/usr/include/{word}-x86_64", f"/usr/include/{word}-aarch64", f"/usr/include/{word}"]
    for place in places:
        found, version = read_header(view, f"{place}/mpi.h")
        if found == family:
            yield Fact(version, f"file {place}/mpi.h")


def _read_wrappers(view: View, family: str, folder: str, prefix: str) -> Iterator[Fact]:
    if family != OPEN_MPI:
        return
    for base in dict.fromkeys((prefix, f"{folder}/openmpi", *(() if prefix else ("/usr", "/usr/local")))):
        path = f"{base}/{_WRAPPER}"
        match = re.search(rb"^version=v?(\d[\w.]*)", view.read(path, _SMALL) or b"", re.MULTILINE)
        if match:
            yield Fact(match[1].decode(), f"file {path}")


def _read_pkg_config(view: View, family: str, folder: str, prefix: str) -> Iterator[Fact]:
    for place in dict.fromkeys((folder, f"{prefix}/lib")):
        for name in _PKG_CONFIG.get(family, ()):
            path = f"{place}/pkgconfig/{name}.pc"
            match = re.search(rb"^Version:\s*(\d[\w.]*)", view.read(path, _SMALL) or b"", re.MULTILINE)
            if match:
                yield Fact(match[1].decode(), f"file {path}")


def _read_library_text(view: View, folder: str) -> Iterator[Fact]:
    for name in view.names(folder):
        if re.match(r"lib(?:open-pal|opal)\.so\.\d+\Z", name):
            path = f"{folder}/{name}"
            yield Fact(find_open_mpi_version(view.read(path, _FIND_VERSION_LARGEST) or b""), f"file {path}")


def _read_packages(view: View, family: str) -> Fact:
    readers = (list_dpkg_packages, list_rpm_packages, list_apk_packages, list_conda_packages)
    for read in readers:
        for package in read(view):
            found, version = read_package(package.name, package.version)
            if found == family:
                return Fact(version, f"package {package.name} {package.version}")
    return Fact()


# Which MPI a library is, by its ELF header and the texts in it; and which one a package holds.
#
# libmpi.so.12 is the name of MPICH, of its relatives, and of Open MPI 1.10: what the library needs tells them apart.

_OPEN_MPI_PARTS = ("libopen-rte", "libopen-pal", "libopal")
_OPEN_MPI_NAMES = re.compile(r"libmpi\.so\.(?:20|4\d)\Z")
_SONAMES = {"0": "3.0", "10": "3.1", "20": "4.0", "30": "4.1", "40": "5.0"}  # libmpi.so.40.N.M -> Open MPI
# Texts in a library, and what follows them. The relatives of MPICH have MPICH's texts too, so MPICH comes last.
_TEXTS = (
    (INTEL, b"Intel(R) MPI Library", re.compile(rb"(?: for Linux\*? OS)?(?:,? Version)? ?(\d{4}(?:\.\d+)*)?")),
    (CRAY, b"CRAY MPICH version", re.compile(rb" (\d[\w.]*)?")),
    (PARASTATION, b"ParaStation MPI", re.compile(rb"(?: (\d[\w.-]*))?")),
    (MVAPICH, b"MVAPICH", re.compile(rb"2?(?:-\w+)? [Vv]ersion\s*:?\s*(\d[\w.]*)?")),
    (MPICH, b"MPICH Version:", re.compile(rb"\s*(\d[\w.]*)?")),
)
_MPICH_VERSION = re.compile(rb"\d+:\d+:\d+\0+[^\0]{10,40}\0+(\d+\.\d+[\w.]*)\0")  # ABI, date of release, version
_NEAR = 4 << 20  # bytes: texts of a library lie together
_OPEN_MPI_VERSION = re.compile(rb"\0v(\d+\.\d+\.\d+\w*)\0")
_PACKAGES = (
    (OPEN_MPI, re.compile(r"(?:lib)?openmpi(?:\d+|-bin|-common|t64|\dt64)?\Z|hpcx|openmpi40-aws")),
    (MPICH, re.compile(r"(?:lib)?mpich(?:12|12t64)?\Z|mpich-autoload")),
    (INTEL, re.compile(r"intel-oneapi-mpi-\d[\d.]*\Z|intel-oneapi-mpi\Z|impi_rt")),
    (MVAPICH, re.compile(r"mvapich2?(?:-.*)?\Z")),
)


def identify_library(elf: ElfObject, data: bytes) -> tuple[str, str]:
    """Family and version, empty where the library does not tell it; `data` is the whole file."""
    if any(name.startswith(_OPEN_MPI_PARTS) for name in elf.needed) or _OPEN_MPI_NAMES.match(elf.soname):
        return OPEN_MPI, ""
    for family, text, pattern in _TEXTS:
        for place in _find_all(data, text):
            match = pattern.match(data, place + len(text))
            if match:
                version = (match[1] or b"").decode("ascii", "replace")
                return family, version or (_find_mpich_version(data, place) if family == MPICH else "")
    if b"Open MPI v" in data:  # one file, with all its parts inside
        return OPEN_MPI, find_open_mpi_version(data)
    return UNKNOWN_FAMILY, ""


def _find_all(data: bytes, text: bytes) -> Iterator[int]:
    place = data.find(text)
    while place >= 0:
        yield place
        place = data.find(text, place + 1)


def find_open_mpi_version(data: bytes) -> str:
    """The version that libopen-pal holds, as `v4.1.4`."""
    match = _OPEN_MPI_VERSION.search(data)
    return match[1].decode() if match else ""


def read_file_version(name: str) -> str:
    """`4.1` of libmpi.so.40.30.4; empty for other names."""
    match = re.match(r"libmpi\.so\.40\.(\d+)\.\d+\Z", name)
    return _SONAMES.get(match[1], "") if match else ""


def read_package(name: str, version: str) -> tuple[str, str]:
    """Family and upstream version of a distribution's package; empty where it holds no MPI."""
    family = next((family for family, pattern in _PACKAGES if pattern.match(name)), "")
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)+)", version)
    return (family, match[1]) if family and match else ("", "")


def _find_mpich_version(data: bytes, place: int) -> str:
    match = _MPICH_VERSION.search(data, place, place + _NEAR)
    return match[1].decode() if match else ""
