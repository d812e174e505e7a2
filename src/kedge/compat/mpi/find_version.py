# SPDX-License-Identifier: BSD-3-Clause
"""The version of an MPI whose library was found: each place that may tell it, the surest first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedge.cluster.host_mpi import read_definitions
from kedge.cluster.mpi import CRAY, INTEL, MPICH, MVAPICH, OPEN_MPI
from kedge.compat.contents.c_library import TRIPLETS
from kedge.compat.mpi.identify import find_open_mpi_version, read_file_version, read_package
from kedge.compat.packages.rpm_database import list_rpm_packages
from kedge.compat.packages.system_packages import list_apk_packages, list_conda_packages, list_dpkg_packages
from kedge.compat.traits import Fact

if TYPE_CHECKING:
    from kedge.system.views import View

_HEADER = 256 << 10
_SMALL = 64 << 10
_LARGEST = 16 << 20
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
            yield Fact(find_open_mpi_version(view.read(path, _LARGEST) or b""), f"file {path}")


def _read_packages(view: View, family: str) -> Fact:
    readers = (list_dpkg_packages, list_rpm_packages, list_apk_packages, list_conda_packages)
    for read in readers:
        for package in read(view):
            found, version = read_package(package.name, package.version)
            if found == family:
                return Fact(version, f"package {package.name} {package.version}")
    return Fact()
