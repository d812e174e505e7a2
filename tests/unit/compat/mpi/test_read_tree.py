# SPDX-License-Identifier: BSD-3-Clause
"""MPIs of trees by their files, the one that a program loads, and the real ones of this host where it has them."""

from __future__ import annotations

import os

from kedge.cluster.mpi import CRAY, INTEL, MPICH, MVAPICH, OPEN_MPI, PMI1, PMI2, PMIX, UNKNOWN_FAMILY, MpiFacts
from kedge.compat.mpi.program_mpi import NeededMpi, find_needed_by, find_needed_mpi
from kedge.compat.mpi.read_tree import find_mpis
from kedge.image.formats.elf import parse_elf
from kedge.system.views import DirectoryView, TableView
from tests.builders.elf_files import make_library
from tests.requirements import require_file

LIB = "/usr/lib/x86_64-linux-gnu"
GLIBC = b"GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n"
OPEN_40 = make_library("libmpi.so.40", ["libopen-rte.so.40", "libopen-pal.so.40", "libc.so.6"], versions=["GLIBC_2.34"])
PAL = make_library("libopen-pal.so.40", ["libc.so.6"], versions=["GLIBC_2.17"], text=b"\0v4.1.4\0")


def read(files: dict[str, bytes | str | None], executables: tuple[str, ...] = (), **variables: str) -> list[MpiFacts]:
    return list(find_mpis(TableView({f"{LIB}/libc.so.6": GLIBC, **files}, executables), variables))


def make_open_mpi(prefix: str, *plugins: str, **more: bytes | str) -> dict[str, bytes | str | None]:
    files: dict[str, bytes | str | None] = {f"{prefix}/openmpi/{name}.so": b"" for name in plugins}
    return {f"{prefix}/libmpi.so.40.30.4": OPEN_40, f"{prefix}/libopen-pal.so.40": PAL, **files, **more}


def test_open_mpi_by_its_files() -> None:
    files = make_open_mpi(LIB, "mca_pmix_ext3x", "mca_pmix_isolated", "mca_pml_ucx", "mca_btl_tcp")
    files[f"{LIB}/libmpi.so.40"] = "-> libmpi.so.40.30.4"
    (mpi,) = read({**files, "/usr/bin/mpirun": "-> orterun", "/usr/bin/orterun": b""}, ("/usr/bin/orterun",))
    assert (mpi.title, mpi.soname, mpi.pmi, mpi.fabrics) == ("Open MPI 4.1.4", "libmpi.so.40", (PMIX,), ("ucx",))
    assert (mpi.glibc, mpi.needs_glibc, mpi.launcher, mpi.prefix) == ("2.36", "2.34", "/usr/bin/mpirun", "")
    (none,) = read(make_open_mpi(LIB, "mca_pmix_isolated", "mca_btl_tcp"))
    assert (none.pmi, none.fabrics) == ((), ())
    (both,) = read(make_open_mpi(LIB, "mca_pmix_pmix3x", "mca_pmix_s2", "mca_pmix_s1"))
    assert both.pmi == (PMIX, PMI2, PMI1)
    (inside,) = read(make_open_mpi(LIB))
    assert inside.pmi is None, "all plug-ins are inside the library: its version must do"
    library = make_library("libmpi.so.40", ["libopen-pal.so.80", "libpmix.so.2"])
    (mpi,) = read({f"{LIB}/libmpi.so.40.40.3": library, f"{LIB}/libpmix.so.2": b"OpenPMIx 5.0.1"})
    assert (mpi.title, mpi.pmi, mpi.pmix_version) == ("Open MPI 5.0", (PMIX,), "5.0.1")


def test_hpcx_of_ngc() -> None:
    prefix = "/opt/hpcx/ompi"
    files = make_open_mpi(f"{prefix}/lib", "mca_pmix_pmix3x", "mca_pml_ucx")
    files[f"{prefix}/include/mpi.h"] = (
        "#define OMPI_MAJOR_VERSION 4\n#define OMPI_MINOR_VERSION 1\n#define OMPI_RELEASE_VERSION 7\n"
    )
    files[f"{prefix}/bin/mpirun"] = b""
    (mpi,) = read(
        files, (f"{prefix}/bin/mpirun",), OPAL_PREFIX=prefix, HPCX_VERSION="2.20", PATH=f"{prefix}/bin:/usr/bin"
    )
    assert (mpi.title, mpi.prefix, mpi.build) == ("Open MPI 4.1.7", prefix, "HPC-X 2.20")
    assert (mpi.launcher, mpi.variables) == (f"{prefix}/bin/mpirun", (("OPAL_PREFIX", prefix),))


def test_so_12_is_told_apart_by_what_it_needs_and_says() -> None:
    old = make_library("libmpi.so.12", ["libopen-rte.so.12", "libopen-pal.so.13"])
    (mpi,) = read({f"{LIB}/libmpi.so.12.0.7": old})
    assert (mpi.family, mpi.abi) == (OPEN_MPI, OPEN_MPI)
    for family, text, version in (
        (MPICH, b"MPICH Version:\t%s\0ABI\0 14:2:2\0Thu Apr  7 12:34:45 CDT 2022\0\x004.0.2\0", "4.0.2"),
        (INTEL, b"Intel(R) MPI Library 2021.9 for Linux* OS\0MPICH Version:\t%s\0", "2021.9"),
        (MVAPICH, b"MVAPICH2 Version     :\t%s\0MPICH Version:\t%s\0", ""),
        (CRAY, b"MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)\0", "8.1.25.17"),
        (UNKNOWN_FAMILY, b"something else", ""),
    ):
        (mpi,) = read({f"{LIB}/libmpi.so.12": make_library("libmpi.so.12", ["libc.so.6"], text=text)})
        assert (mpi.family, mpi.version) == (family, version)


def test_intel_mpi_needs_the_library_of_slurm() -> None:
    prefix = "/opt/intel/oneapi/mpi/2021.9.0"
    library = make_library("libmpi.so.12", ["libc.so.6"], text=b"Intel(R) MPI Library")
    files = {f"{prefix}/lib/release/libmpi.so.12.0.0": library, f"{prefix}/libfabric/lib/libfabric.so.1": b""}
    (mpi,) = read(files)
    assert (mpi.title, mpi.needs_pmi_library, mpi.fabrics) == ("Intel MPI 2021.9.0", True, ("libfabric",))
    assert (mpi.prefix, mpi.pmi) == (prefix, (PMI2, PMI1))


def test_several_mpis_are_told_apart() -> None:
    text = b"MPICH Version:\t4.1\0"
    files = {
        f"{LIB}/libmpi.so.40.30.4": OPEN_40, "/usr/bin/mpirun": "-> orterun", "/usr/bin/orterun": b"",
        "/opt/mpich/lib/libmpi.so.12": make_library("libmpi.so.12", text=text), "/opt/mpich/bin/mpirun": b"",
    }  # fmt: skip
    programs = ("/usr/bin/orterun", "/opt/mpich/bin/mpirun")
    assert [mpi.family for mpi in read(files, programs, PATH="/usr/bin")] == [OPEN_MPI, MPICH]
    assert [mpi.family for mpi in read(files, programs, PATH="/opt/mpich/bin:/usr/bin")] == [MPICH, OPEN_MPI]
    text = b"MPICH Version:\t4.2.0\0"
    library = make_library("libmpi.so.12", ["libpmix.so.2", "libfabric.so.1"], text=text)
    (mpi,) = read({"/opt/mpich/lib/libmpi.so.12.4.0": library})
    assert (mpi.title, mpi.pmi, mpi.fabrics) == ("MPICH 4.2.0", (PMIX,), ("libfabric",))
    status = "Package: libopenmpi3\nStatus: install ok installed\nVersion: 4.1.4-3+b1\nArchitecture: amd64\n"
    (mpi,) = read({f"{LIB}/libmpi.so.40.30.4": OPEN_40, "/var/lib/dpkg/status": status})
    assert (mpi.version, mpi.source) == ("4.1.4", "package libopenmpi3 4.1.4-3+b1")
    (mpi,) = read({"/usr/local/mpi/include/mpi.h": '#define MPICH_VERSION "3.4.3"\n'})
    assert (mpi.title, mpi.source) == ("MPICH 3.4.3", "file /usr/local/mpi/include/mpi.h")
    assert read({f"{LIB}/libmpi.so.40": b"no ELF", f"{LIB}/libmpich.so.12": b"\x7fELF\x02\x01" + bytes(60)}) == []
    assert read({}) == []


def test_mpis_of_this_host() -> None:
    """Debian's own, as they are installed."""
    require_file("/usr/lib/*/libmpi.so.40")
    require_file("/usr/lib/*/libmpich.so.12")
    found = {mpi.family: mpi for mpi in find_mpis(DirectoryView("/"), {"PATH": os.environ["PATH"]})}
    assert found[OPEN_MPI].pmi == (PMIX,)
    assert found[MPICH].pmi == (PMI2, PMI1)
    assert found[OPEN_MPI].version.startswith(("4.", "5."))
    assert found[MPICH].version.startswith("4.")
    assert found[MPICH].fabrics


OPEN = make_library("libmpi.so.40")
FILES = {
    "/usr/lib64/libmpi.so.40": OPEN,
    "/opt/mpi/lib/libmpi.so.40": OPEN,
    "/usr/bin/direct": make_library(needed=["libmpi.so.40", "libc.so.6"]),
    "/usr/bin/own": make_library(needed=["libmpi.so.40"], runpath="$ORIGIN/../../opt/mpi/lib"),
    "/usr/bin/through": make_library(needed=["libpetsc.so.3"]),
    "/usr/lib64/libpetsc.so.3": make_library("libpetsc.so.3", ["libmpich.so.12"]),
    "/usr/bin/none": make_library(needed=["libc.so.6"]),
    "/usr/bin/script": "#!/usr/bin/env python3\nimport mpi4py\n",
    "/usr/bin/python3": make_library(needed=["libc.so.6"]),
    "/usr/lib/python3.11/site-packages/mpi4py/MPI.cpython-311.so": make_library(needed=["libmpi.so.40"]),
}
PROGRAMS = tuple(path for path in FILES if path.startswith("/usr/bin/"))


def find(program: str, **variables: str) -> NeededMpi:
    return find_needed_mpi(TableView(FILES, PROGRAMS), program, variables)


def test_which_mpi_a_program_loads() -> None:
    assert find("direct") == NeededMpi("libmpi.so.40", "/usr/lib64/libmpi.so.40")
    assert find("/usr/bin/direct", LD_LIBRARY_PATH="/opt/mpi/lib").path == "/opt/mpi/lib/libmpi.so.40"
    assert find("own").path == "/opt/mpi/lib/libmpi.so.40"
    assert find("through") == NeededMpi("libmpich.so.12", "")
    assert find("script").name == find("python3").name == "libmpi.so.40"
    elf = parse_elf(make_library(needed=["libpetsc.so.3"]), "a.out")
    assert elf is not None
    assert find_needed_by(TableView(FILES), elf, {}) == NeededMpi("libmpich.so.12", "")
    assert find("none") == find("absent") == find("/usr/bin/absent") == NeededMpi()
