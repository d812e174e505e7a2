# SPDX-License-Identifier: BSD-3-Clause
"""Where a tree may have its MPIs: the directories of libraries to look into, those that programs look into first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kedge.compat.contents.c_library import LIBRARY_FOLDERS

if TYPE_CHECKING:
    from kedge.system.views import View

SHARED_PREFIXES = ("", "/usr", "/usr/local")  # several MPIs lie in these
_LIBRARY = re.compile(r"lib(?:mpi|mpich|mpi_cray|mpi_gnu_\d+|mvapich2?)\.so(?:\.\d+)*\Z")
VARIABLES = ("OPAL_PREFIX", "MPI_HOME", "I_MPI_ROOT", "MPICH_DIR", "CRAY_MPICH_DIR", "MPI_ROOT", "HPCX_MPI_DIR")
_PREFIXES = (
    *("/opt/hpcx/ompi", "/usr/local/mpi", "/usr/local/ompi", "/opt/amazon/openmpi", "/usr/local", "/opt/conda"),
    *(f"/usr/lib64/{name}" for name in ("openmpi", "mpich", "mvapich2")),
)
_PARENTS = ("/opt", "/usr/local", "/usr/mpi/gcc", "/opt/intel/oneapi/mpi", "/opt/cray/pe/mpich", "/opt/openmpi")
_NAMES = re.compile(r"(?:open-?mpi|ompi|mpich|mvapich|hpcx|impi|intel-?mpi|mpi|\d).*", re.IGNORECASE)
_BELOW = ("lib", "lib64", "lib/release", "lib/release_mt", "lib-abi-mpich", "ompi/lib", "openmpi/lib")
_MOST = 200  # directories that are looked into
_MOST_NAMES = 20_000  # of one directory


def list_library_folders(view: View, environment: Mapping[str, str]) -> list[str]:
    """The directories that hold an MPI library, links followed, in the order in which programs would find them."""
    found: dict[str, None] = {}
    for count, folder in enumerate(dict.fromkeys(_list_candidates(view, environment))):
        if count >= _MOST:
            break
        if view.kind(folder) == "d" and list_libraries(view, folder):
            found[view.resolve(folder)] = None
    return list(found)


def list_prefixes(environment: Mapping[str, str]) -> list[str]:
    """Where MPIs are installed that have a directory of their own, those first that variables name."""
    return [*(environment.get(name, "").rstrip("/") for name in VARIABLES), *_PREFIXES, "/usr"]


def list_libraries(view: View, folder: str) -> list[str]:
    """The names of MPI libraries in a directory, those with the longest version last."""
    names = [name for name in view.names(folder)[:_MOST_NAMES] if _LIBRARY.match(name)]
    return [name for name in names if view.kind(f"{folder}/{name}") == "f"]


def _list_candidates(view: View, environment: Mapping[str, str]) -> Iterator[str]:
    yield from _split(environment.get("LD_LIBRARY_PATH", ""))
    for name in VARIABLES:
        yield from _below(environment.get(name, ""))
    for folder in _split(environment.get("PATH", "")):
        prefix, _, last = folder.rstrip("/").rpartition("/")
        if last == "bin" and prefix not in SHARED_PREFIXES:
            yield from _below(prefix)
    yield from list_loader_folders(view)
    yield from (folder for prefix in _PREFIXES for folder in _below(prefix))
    for folder in LIBRARY_FOLDERS:
        yield folder
        yield from (f"{folder}/{name}" for name in ("openmpi/lib", "openmpi", "mpich/lib", "mpich"))
    for parent in _PARENTS:
        for name in view.names(parent)[:_MOST]:
            if _NAMES.fullmatch(name):
                yield from _below(f"{parent}/{name}")


def _below(prefix: str) -> list[str]:
    return [f"{prefix.rstrip('/')}/{folder}" for folder in _BELOW] if prefix.startswith("/") else []


def _split(path: str) -> list[str]:
    return [folder for folder in path.split(":") if folder.startswith("/")][:_MOST]


def list_loader_folders(view: View) -> list[str]:
    """What ldconfig was told of in /etc/ld.so.conf.d; its cache is not read: images often have none."""
    names = [f"/etc/ld.so.conf.d/{name}" for name in view.names("/etc/ld.so.conf.d")[:_MOST] if name.endswith(".conf")]
    folders: list[str] = []
    for path in ("/etc/ld.so.conf", *names):
        text = (view.read(path, 64 << 10) or b"").decode("utf-8", "replace")
        folders += [line.strip() for line in text.splitlines() if line.strip().startswith("/")]
    return folders
