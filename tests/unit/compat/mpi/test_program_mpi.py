# SPDX-License-Identifier: BSD-3-Clause
"""Which MPI a program of a tree loads."""

from __future__ import annotations

from kedge.compat.mpi.program_mpi import NeededMpi, find_needed_by, find_needed_mpi
from kedge.image.formats.elf import parse_elf
from kedge.system.views import TableView
from tests.builders.elf_files import make_library

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


def test_by_its_needs() -> None:
    assert find("direct") == NeededMpi("libmpi.so.40", "/usr/lib64/libmpi.so.40")
    assert find("/usr/bin/direct", LD_LIBRARY_PATH="/opt/mpi/lib").path == "/opt/mpi/lib/libmpi.so.40"
    assert find("own").path == "/opt/mpi/lib/libmpi.so.40"


def test_through_a_library_of_its_own() -> None:
    assert find("through") == NeededMpi("libmpich.so.12", "")


def test_python_through_mpi4py() -> None:
    assert find("script").name == find("python3").name == "libmpi.so.40"


def test_program_from_outside_of_the_tree() -> None:
    elf = parse_elf(make_library(needed=["libpetsc.so.3"]), "a.out")
    assert elf is not None
    assert find_needed_by(TableView(FILES), elf, {}) == NeededMpi("libmpich.so.12", "")


def test_without_mpi() -> None:
    assert find("none") == find("absent") == find("/usr/bin/absent") == NeededMpi()
