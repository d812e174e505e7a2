# SPDX-License-Identifier: BSD-3-Clause
"""`--mpi-mode bind`: the launch as it is when the host's MPI stands in for the image's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kedge.base.frozen import frozen, replace
from kedge.base.versions import order
from kedge.cluster.mpi import FAILS, MPICH, OPEN_MPI, MpiFacts, MpiHost, MpiImage
from kedge.compat.contents.c_library import LIBRARY_FOLDERS
from kedge.compat.mpi.judge_bind import choose_bound, judge_bind
from kedge.compat.mpi_for_launch import find_launched_path
from kedge.container.facts import LIBRARIES
from kedge.errors import LaunchRefused
from kedge.image.host_programs.library_closure import ClosedObjects, close_over
from kedge.image.inspect import inspect_path
from kedge.image.open_view import open_view, read_file_environment
from kedge.launch.request import LaunchRequest
from kedge.system.files import explained
from kedge.system.tree_walk import walk_tree


def use_host_mpi(
    request: LaunchRequest, image: MpiImage, host: MpiHost, environ: Mapping[str, str]
) -> tuple[LaunchRequest, MpiImage, tuple[str, ...]]:
    """Request and image with the host's MPI in the container, and why."""
    binding = bind_host_mpi(image, host, environ, read_image_libraries(request.image, environ))
    reason = (
        f"{binding.mpi.title} of the host is in the container ({len(binding.libraries)} libraries): --mpi-mode bind"
    )
    changed = replace(request, options=(*request.options, *binding.options))
    return changed, replace(image, mpis=(binding.mpi,), is_searched=True), (reason,)


# Brings the host's MPI and its fabric libraries into a container, in place of the one that programs were linked with.
#
# Libraries go to a directory of their own that the loader searches first; plug-ins and their settings to the places
# where the libraries look for them. The C library is the image's own, so it must be new enough for all of them.

FOLDER = "/.kedge/mpi/lib"
# What the image has for itself, in the version that its programs were made with
_OF_THE_IMAGE = re.compile(
    r"lib(?:stdc\+\+|gcc_s|gfortran|quadmath|gomp|z|ssl|crypto|tinfo|ncurses\w*|lzma|bz2|zstd|selinux|pcre\S*)\.so.*"
)
_LANGUAGES = {  # libraries beside libmpi that programs of C++ and Fortran need
    OPEN_MPI: re.compile(r"lib(?:mpi_\w+|oshmem)[\w-]*\.so\.\d+\Z"),
    MPICH: re.compile(r"lib(?:mpicxx|mpichcxx|mpifort|mpichfort)[\w-]*\.so\.\d+\Z"),
}
# Plug-ins and settings that libraries look for at fixed places: by the start of a library's name
_PLUGINS = {
    "libopen-pal": ("{lib}/openmpi", "{lib}/openmpi3", "/usr/share/openmpi", "/etc/openmpi"),
    "libpmix": ("{lib}/pmix2", "{lib}/pmix", "/usr/share/pmix", "/etc/pmix-mca-params.conf"),
    "libucs": ("{lib}/ucx", "/etc/ucx"),
    "libfabric": ("{lib}/libfabric",),
    "libibverbs": ("{lib}/libibverbs", "/etc/libibverbs.d"),
}


@frozen
class MpiBinding:
    """The options of `kedge exec` that bring the host's MPI in, and the MPI that programs then have."""

    options: tuple[str, ...]
    mpi: MpiFacts
    libraries: tuple[str, ...] = ()  # names of the libraries that are mounted
    missing: tuple[str, ...] = ()  # names that some of them need, and the host does not have


@frozen
class ImageLibraries:
    """What a binding must know of the image: its LD_LIBRARY_PATH, and the names of the libraries that it has."""

    path: str = ""
    names: frozenset[str] = frozenset()


def read_image_libraries(image: str, environ: Mapping[str, str]) -> ImageLibraries:
    """Return the libraries of an image that is on this host; raises LaunchRefused for others."""
    path = find_launched_path(image, environ)
    if path is None:
        raise LaunchRefused(
            f"{image} is not on this node yet, so kedge cannot tell what the host's MPI meets there",
            hint=f"unpack it first: kedge unpack {image}",
        )
    variables = read_file_environment(inspect_path(path))
    with explained(path), open_view(path) as (view, _):
        folders = [*variables.get("LD_LIBRARY_PATH", "").split(":"), *LIBRARY_FOLDERS]
        names = [name for folder in folders if folder and view is not None for name in view.names(folder)]
    return ImageLibraries(variables.get("LD_LIBRARY_PATH", ""), frozenset(name for name in names if ".so" in name))


def bind_host_mpi(image: MpiImage, host: MpiHost, environ: Mapping[str, str], own: ImageLibraries) -> MpiBinding:
    """How the host's MPI comes into a container of the image; `own` are the libraries of the image.

    Raises LaunchRefused where it cannot stand in, or where the image's C library is too old for it.
    """
    verdict = judge_bind(image, host)
    mpi = choose_bound(image, host)
    if mpi is None or verdict.level == FAILS:
        raise LaunchRefused(f"the host's MPI cannot be used in {image.name}: {verdict.reason}", hint=verdict.remedy)
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    first = close_over(_list_roots(mpi), folders)
    places = _list_places(mpi, first)
    found = close_over([*_list_roots(mpi), *_list_modules(places)], folders)
    _require_glibc(image, mpi, found)
    names = _name_libraries(image, mpi, found, own)
    path = ":".join(filter(None, (FOLDER, own.path, LIBRARIES)))
    binds = [*((source, f"{FOLDER}/{name}") for name, source in names.items()), *((place, place) for place in places)]
    options = ["--bind", ",".join(f"{_escape(source)}:{_escape(place)}:ro" for source, place in binds)]
    options += ["--env", f"LD_LIBRARY_PATH={path}"]
    if mpi.prefix and mpi.abi == OPEN_MPI:
        options += ["--env", f"OPAL_PREFIX={mpi.prefix}"]
    return MpiBinding(
        tuple(options),
        replace(mpi, glibc=image.glibc, library=f"{FOLDER}/{_name(mpi)}", launcher=""),
        tuple(names),
        found.missing,
    )


def _name(mpi: MpiFacts) -> str:
    return mpi.soname or mpi.library.rpartition("/")[2]


def _list_roots(mpi: MpiFacts) -> list[str]:
    """The library itself, and those for other languages beside it."""
    folder = os.path.dirname(mpi.library)  # noqa: PTH120 - text
    pattern = _LANGUAGES[mpi.abi or MPICH]
    beside = sorted(name for name in os.listdir(folder) if pattern.match(name))  # noqa: PTH208
    return [mpi.library, *(f"{folder}/{name}" for name in beside)]


def _list_places(mpi: MpiFacts, found: ClosedObjects) -> list[str]:
    """Directories and files that are mounted where they are on the host."""
    own = [mpi.prefix] if mpi.prefix else []
    for each in found.objects:
        for start, patterns in _PLUGINS.items():
            if each.name.startswith(start):
                own += [pattern.format(lib=os.path.dirname(each.path)) for pattern in patterns]  # noqa: PTH120
    extra = [] if mpi.abi != OPEN_MPI else _PLUGINS["libpmix"][:1]
    own += [pattern.format(lib=os.path.dirname(mpi.library)) for pattern in extra]  # noqa: PTH120
    kept = [place for place in dict.fromkeys(own) if os.path.exists(place)]  # noqa: PTH110
    return [place for place in kept if not any(place.startswith(f"{other}/") for other in kept)]


def _list_modules(places: Iterable[str]) -> list[str]:
    """The plug-ins below the places: they need libraries of their own, which a closure of libmpi does not have."""
    return [
        path
        for place in places
        for path in sorted(
            folder.tree.show(folder.join(name))
            for folder, entries in walk_tree(Path(place))
            for name, _ in entries
            if b".so" in name
        )
        if os.path.isfile(path)  # noqa: PTH113 - text
    ]


def _require_glibc(image: MpiImage, mpi: MpiFacts, found: ClosedObjects) -> None:
    newest = found.newest
    if newest is None or not order(image.glibc) or order(newest.glibc) <= order(image.glibc):
        return
    raise LaunchRefused(
        f"{newest.path}, which {mpi.title} of the host needs, asks for glibc {newest.glibc}; {image.name} has "
        f"{image.glibc}: programs would end with 'GLIBC_{newest.glibc} not found'",
        hint="use the image's own MPI, or an image with a newer system",
    )


def _name_libraries(image: MpiImage, mpi: MpiFacts, found: ClosedObjects, own: ImageLibraries) -> dict[str, str]:
    """The files by the names under which they are asked for; plug-ins and what the image has itself are left out."""
    names = {
        each.name: each.path
        for each in found.objects
        if re.fullmatch(r"lib.*\.so\.\d.*", each.name)
        and not (_OF_THE_IMAGE.fullmatch(each.name) and each.name in own.names)
    }
    if mpi.abi == MPICH:  # one ABI, two names
        wanted = image.needed or (image.mpi.soname if image.mpi else "")
        for name in filter(None, (wanted, "libmpi.so.12", "libmpich.so.12")):
            names.setdefault(name, mpi.library)
    return names


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
