# SPDX-License-Identifier: BSD-3-Clause
"""Which MPI a library is, by its ELF header and the texts in it; and which one a package holds.

libmpi.so.12 is the name of MPICH, of its relatives, and of Open MPI 1.10: what the library needs tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.cluster.mpi import CRAY, INTEL, MPICH, MVAPICH, OPEN_MPI, PARASTATION, UNKNOWN_FAMILY
from kedge.image.formats.elf import ElfObject

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
