# SPDX-License-Identifier: BSD-3-Clause
"""What the files of an image say that its config does not: system, C library, Python, CUDA, MPI, the carried driver.

Nothing is run. A few known places are looked at, of each file a bounded part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kedge.compat.image.clean_config import clean_text
from kedge.compat.image.toolkit_version import read_toolkit
from kedge.compat.image.traits import Fact
from kedge.compat.versions import order
from kedge.errors import InvalidReference
from kedge.formats.elf import identify_machine
from kedge.host.mpi import OPEN_MPI, read_definitions
from kedge.model.platform import Platform
from kedge.runtime.devices.nvidia.libcuda import find_carried, read_branches

if TYPE_CHECKING:
    from kedge.posix.views import View

_SMALL = 64 << 10
_LIBC = 4 << 20  # bytes of a C library that are searched for its version
_HEADER = 256 << 10
_MOST_NAMES = 20_000  # of one directory
_TRIPLETS = ("x86_64-linux-gnu", "aarch64-linux-gnu", "powerpc64le-linux-gnu")
_LIBRARIES = (
    *(f"/usr/lib/{triplet}" for triplet in _TRIPLETS),
    *(f"/lib/{triplet}" for triplet in _TRIPLETS),
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
)
_CUDA = "/usr/local/cuda"
_TOOLKIT = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/cuda/targets/sbsa-linux/lib",
)
_MPI_PREFIXES = ("/opt/hpcx/ompi", "/usr/local/mpi", "/usr/local", "/opt/amazon/openmpi", "/usr", "/opt/openmpi")
_MPI_LIBRARIES = ("/openmpi/lib", "/openmpi", "/mpich/lib", "/mpich")  # below a directory of libraries
_SONAMES = {"0": "3.0", "10": "3.1", "20": "4.0", "30": "4.1", "40": "5.0"}  # libmpi.so.40.N.M -> Open MPI
_PYTHONS = ("/opt/conda/bin", "/usr/local/bin", "/usr/bin")
_SYSTEMS = {"ubuntu": "Ubuntu", "debian": "Debian", "rocky": "Rocky Linux", "centos": "CentOS", "alpine": "Alpine"}
_PROGRAMS = ("/bin/sh", "/usr/bin/env", "/bin/ls", "/bin/busybox", "/usr/bin/python3")
_RELEASE = re.compile(rb"GNU C Library[^\n]{0,120}release version (\d+\.\d+)")
_PACKAGES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "mxnet": "MXNet"}


def look_inside(view: View, environment: Mapping[str, str]) -> tuple[dict[str, Fact], list[str]]:
    """Facts under the names of ImageTraits, and notes; what is not there is left out."""
    facts: dict[str, Fact] = {}
    for name, fact in _list_facts(view, environment):
        if fact.value:
            facts.setdefault(name, fact)
    return facts, _list_notes(view)


def find_machine(view: View) -> str:
    """The architecture of a program in the image; empty where there is none that tells."""
    for path in _PROGRAMS:
        name = identify_machine(view.read(path, 64) or b"")
        try:
            if name:
                return Platform.parse(name).architecture
        except InvalidReference:  # a machine that no image is made for
            continue
    return ""


def _list_facts(view: View, environment: Mapping[str, str]) -> Iterator[tuple[str, Fact]]:
    yield "os", _read_system(view)
    yield "glibc", _read_c_library(view)
    yield "python", _read_python(view, environment)
    yield "cuda", read_toolkit(_CUDA, view.read)
    yield from _read_driver(view)
    yield from _read_library_names(view)
    yield "mpi", _read_mpi(view, environment)
    yield from _read_packages(view)


def _read_system(view: View) -> Fact:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = (view.read(path, _SMALL) or b"").decode("utf-8", "replace")
        values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        values = {name.strip(): value.strip().strip("\"'") for name, value in values.items()}
        version = values.get("VERSION_ID", "")
        name = _SYSTEMS.get(values.get("ID", ""), values.get("NAME", ""))
        if name:
            return Fact(clean_text(f"{name} {version}".strip(), 60), f"file {path}")
    return Fact()


def _read_c_library(view: View) -> Fact:
    for folder in _LIBRARIES:
        path = f"{folder}/libc.so.6"
        if view.kind(path) != "f":
            continue
        named = re.match(r"libc-(\d+\.\d+)\.so\Z", view.resolve(path).rpartition("/")[2])
        release = None if named else _RELEASE.search(view.read(path, _LIBC) or b"")
        version = named[1] if named else release[1].decode() if release else ""
        if version:
            return Fact(version, f"file {path}")
    for name in _list_names(view, "/lib"):
        if name.startswith("ld-musl-"):
            return Fact("musl", f"file /lib/{name}")
    return Fact()


def _read_python(view: View, environment: Mapping[str, str]) -> Fact:
    """The Python that `python3` means: what the link points to, or the name beside it."""
    wanted = [folder for folder in environment.get("PATH", "").split(":") if folder.startswith("/")][:20]
    for folder in dict.fromkeys([*wanted, *_PYTHONS]):
        path = f"{folder}/python3"
        if view.kind(path) != "f":
            continue
        match = re.match(r"python(3\.\d+)\Z", view.resolve(path).rpartition("/")[2])
        if match:
            return Fact(match[1], f"file {path}")
    return Fact()


def _read_driver(view: View) -> Iterator[tuple[str, Fact]]:
    """The driver libraries that the image carries for older hosts, with the branches that they list themselves."""
    carried = find_carried(view)
    if carried is None:
        return
    source = f"file {carried.folder}/libcuda.so.{carried.version}"
    yield "driver", Fact(carried.version, source)
    yield "compat", Fact("yes", source)
    read_branches(view, carried)
    branches = sorted(branch for branch in carried.branches or () if 0 < branch < 10_000)
    yield "compat_branches", Fact(" ".join(map(str, branches)), source)


def _read_library_names(view: View) -> Iterator[tuple[str, Fact]]:
    """Libraries whose file names end in their versions: libnccl.so.2.19.4."""
    wanted = {"nccl": "libnccl.so.", "cudnn": "libcudnn.so.", "tensorrt": "libnvinfer.so."}
    for folder in (*_LIBRARIES[:3], "/usr/lib64", *_TOOLKIT):
        names = _list_names(view, folder)
        for fact, start in wanted.items():
            versions = [name.removeprefix(start) for name in names if name.startswith(start)]
            full = [version for version in versions if len(order(version)) >= 3]
            if full:
                version = max(full, key=order)
                yield fact, Fact(clean_text(version, 30), f"file {folder}/{start}{clean_text(version, 30)}")


def _read_mpi(view: View, environment: Mapping[str, str]) -> Fact:
    own = environment.get("OPAL_PREFIX", "") or environment.get("MPI_HOME", "")
    prefixes = [own] if own.startswith("/") else []
    prefixes += _MPI_PREFIXES
    prefixes += [f"/opt/intel/oneapi/mpi/{name}" for name in _list_names(view, "/opt/intel/oneapi/mpi")[:20]]
    for prefix in dict.fromkeys(prefixes):
        mpi = _read_mpi_prefix(view, prefix.rstrip("/"))
        if mpi:
            return mpi
    for folder in _LIBRARIES:
        places = [folder, *(folder + below for below in _MPI_LIBRARIES)]
        for place in places:
            mpi = _read_mpi_library(view, place)
            if mpi:
                return mpi
    return Fact()


def _read_mpi_prefix(view: View, prefix: str) -> Fact:
    wrapper = f"{prefix}/share/openmpi/mpicc-wrapper-data.txt"
    match = re.search(rb"^version=v?(\d[\w.]*)", view.read(wrapper, _SMALL) or b"", re.MULTILINE)
    if match:
        return Fact(f"{OPEN_MPI} {match[1].decode()}", f"file {wrapper}")
    for header in (f"{prefix}/include/mpi.h", f"{prefix}/include/openmpi/mpi.h"):
        text = (view.read(header, _HEADER) or b"").decode("utf-8", "replace")
        for family, version in read_definitions(text):
            return Fact(clean_text(f"{family} {version}", 60), f"file {header}")
    return _read_mpi_library(view, f"{prefix}/lib") if prefix not in ("/usr", "/usr/local") else Fact()


def _read_mpi_library(view: View, folder: str) -> Fact:
    """By the name of the library: libmpi.so.40.30.4 is of Open MPI 4.1; .12 is of MPICH and its kin."""
    for name in _list_names(view, folder):
        match = re.match(r"libmpi\.so\.40\.(\d+)\.\d+\Z", name)
        if match and match[1] in _SONAMES:
            return Fact(f"{OPEN_MPI} {_SONAMES[match[1]]}", f"file {folder}/{name}")
        if re.match(r"libmpich\.so\.12", name):
            return Fact("MPICH", f"file {folder}/{name}")
    return Fact()


def _read_packages(view: View) -> Iterator[tuple[str, Fact]]:
    """Frameworks that are installed as Python packages, by the names of their directories."""
    for library in ("/opt/conda/lib", "/usr/local/lib", "/usr/lib"):
        for python in _list_names(view, library):
            if not re.match(r"python3\.\d+\Z", python):
                continue
            for packages in ("site-packages", "dist-packages"):
                folder = f"{library}/{python}/{packages}"
                for name in _list_names(view, folder):
                    package, dash, version = name.removesuffix(".dist-info").partition("-")
                    if dash and name.endswith(".dist-info") and package in _PACKAGES and order(version):
                        yield "framework", Fact(_PACKAGES[package], f"file {folder}/{package}")
                        yield "framework_version", Fact(clean_text(version, 60), f"file {folder}/{package}")
                        return


def _list_notes(view: View) -> list[str]:
    for folder in _LIBRARIES:
        for name in _list_names(view, folder):
            is_driver = name.startswith(("libcuda.so.", "libnvidia-ml.so."))
            if is_driver and view.kind(f"{folder}/{name}") == "f" and view.read(f"{folder}/{name}", 1) == b"":
                return [
                    f"{folder}/{clean_text(name, 60)} is empty: the image was made in a container that had the driver "
                    f"mounted; programs that find it fail. Delete such files when you build the image"
                ]
    return []


def _list_names(view: View, folder: str) -> list[str]:
    return view.names(folder)[:_MOST_NAMES]
