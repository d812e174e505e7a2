# SPDX-License-Identifier: BSD-3-Clause
"""The MPIs of an image, wherever it is: by its files where it is on this host, else by its config. Nothing is run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kedge.base.frozen import as_dict, list_names, replace
from kedge.base.image_argument import find_path
from kedge.base.release import VERSION
from kedge.cluster.host_mpi import find_mpi
from kedge.cluster.mpi import LIST_COMMAND, UNKNOWN_FAMILY, MpiFacts, MpiHost, MpiImage, parse_mpi_types
from kedge.cluster.this_host import read_glibc
from kedge.compat.contents.c_library import LIBRARY_FOLDERS, read_c_library
from kedge.compat.mpi.places import VARIABLES, list_libraries, list_library_folders
from kedge.compat.mpi.program_mpi import NeededMpi, find_needed_by, find_needed_mpi
from kedge.compat.mpi.read_tree import find_mpis, read_stated_mpi
from kedge.errors import KedgeError, ProgramFailed, ProgramMissing
from kedge.image.formats.elf import read_elf
from kedge.image.image_file import identify
from kedge.image.inspect import inspect_path
from kedge.image.node_cache import find_by_reference
from kedge.image.open_view import open_view, read_file_environment
from kedge.image.store.file_digests import FileFacts
from kedge.image.store.layout import Layout
from kedge.system.files import explained
from kedge.system.process import run_program
from kedge.system.programs import find_program
from kedge.system.settings import Settings
from kedge.system.views import DirectoryView

if TYPE_CHECKING:
    from kedge.base.reference import Reference
    from kedge.compat.tables.load import Tables
    from kedge.image.workplace import Workplace
    from kedge.system.views import View


def read_image_mpi(
    reference: Reference, workplace: Workplace, tables: Tables, *, program: str = "", offline: bool = False
) -> MpiImage:
    """The MPIs of the image that `reference` names; with `program` the one first that this program uses."""
    from kedge.compat.image_traits import read_image_traits  # late: a launch has a file, and needs no registry
    from kedge.image.sources.classify import classify

    source = classify(reference)
    if source.path is not None:
        return read_path_mpi(source.path, program=program)
    traits = read_image_traits(reference, workplace, tables, offline=offline)
    stated = read_stated_mpi(traits)
    note = "only the image's config was read: pull the image to read its files"
    return MpiImage(traits.name, (stated,) if stated else (), glibc=traits.glibc.value, notes=(note,))


def read_path_mpi(path: Path, *, program: str = "") -> MpiImage:
    """The MPIs of a SIF, SquashFS file or directory."""
    environment = read_file_environment(inspect_path(path))
    with explained(path), open_view(path) as (view, _):
        if view is None:
            return MpiImage(str(path), notes=("its files cannot be read: it is encrypted, or no SquashFS",))
        return read_view_mpi(str(path), view, environment, program=program)


def read_view_mpi(name: str, view: View, environment: Mapping[str, str], *, program: str = "") -> MpiImage:
    """Return the MPI of a tree that is open."""
    mpis = find_mpis(view, environment)
    notes: list[str] = []
    needed = ""
    if program:
        found = find_needed_mpi(view, program, environment)
        if not found.name:
            found = _find_mounted(view, program, environment)
        needed = found.name
        mpis, notes = _order(mpis, found.path, needed, program)
    if len(mpis) > 1:
        others = ", ".join(f"{mpi.title} ({mpi.library})" for mpi in mpis[1:])
        notes.append(f"the image has other MPIs as well: {others}")
    return MpiImage(name, mpis, read_c_library(view).value, is_searched=True, needed=needed, notes=tuple(notes))


def _find_mounted(view: View, program: str, environment: Mapping[str, str]) -> NeededMpi:
    """A program of this host that the container will see, such as one in the current directory."""
    if "/" not in program or not Path(program).is_file():
        return NeededMpi()
    try:
        elf = read_elf(Path(program))
    except KedgeError:
        return NeededMpi()
    return find_needed_by(view, elf, environment) if elf is not None else NeededMpi()


def _order(mpis: Sequence[MpiFacts], path: str, needed: str, program: str) -> tuple[tuple[MpiFacts, ...], list[str]]:
    """The one first that the program loads."""
    if not needed:
        return tuple(mpis), []
    if not path:
        return (), [f"{program} needs {needed}, which the image does not have"]
    ordered = sorted(mpis, key=lambda mpi: (mpi.library != path, mpi.soname != needed))
    if ordered and ordered[0].library == path:
        ordered[0] = replace(ordered[0], source=f"{ordered[0].source}; {program} loads it")
    return tuple(ordered), []


# The MPI of this host, what srun serves to ranks, and Slurm's PMI library.

_PATIENCE = 5.0  # seconds for srun to answer
_PMI_FOLDERS = (*LIBRARY_FOLDERS, "/opt/slurm/lib64", "/opt/slurm/lib", "/usr/local/lib", "/opt/cray/pe/lib64")
_PMI_NAMES = ("libpmi2.so.0", "libpmi2.so")


def read_host_mpi(environ: Mapping[str, str], *, view: View | None = None, ask: bool = True) -> MpiHost:
    """Return what this host offers to ranks; with `ask` srun is asked, which takes some milliseconds."""
    tree = view or DirectoryView("/", is_still=True)
    has_slurm = find_program(LIST_COMMAND[0]) is not None
    found = _find_mpis(tree, environ, is_here=view is None)
    used = _join(find_mpi(environ), found)
    return MpiHost(
        mpi=used,
        others=tuple(mpi for mpi in found if mpi.launcher and (used is None or mpi.library != used.library)),
        plugins=list_mpi_types(environ) if ask and has_slurm else None,
        has_slurm=has_slurm,
        pmi_library=find_pmi_library(tree),
        glibc=read_glibc(),
    )


def _find_mpis(view: View, environ: Mapping[str, str], *, is_here: bool) -> tuple[MpiFacts, ...]:
    """Return the MPIs of the tree; of this host read anew only where a library or a variable is another one."""

    def read() -> tuple[MpiFacts, ...]:
        from kedge.compat.mpi.read_tree import find_mpis  # late: the MPIs of a host seldom change

        return find_mpis(view, environ)

    if not is_here:
        return read()
    states = [f"{name}={environ.get(name, '')}" for name in ("PATH", "LD_LIBRARY_PATH", *VARIABLES)]
    for folder in list_library_folders(view, environ):
        states += [describe_file(f"{folder}/{name}") for name in list_libraries(view, folder)]
    return recall_host(os.uname().nodename, "\n".join(states), environ, read)


def list_mpi_types(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The words that srun takes for --mpi; None where it does not answer."""
    try:
        done = run_program(LIST_COMMAND, environment=environ, timeout=_PATIENCE, check=False)
    except (ProgramFailed, ProgramMissing):
        return None
    if done.status:
        return None
    return tuple(parse_mpi_types((done.output + b"\n" + done.errors).decode(errors="replace"))) or None


def find_pmi_library(view: View) -> str:
    """Slurm's libpmi2.so, which Intel MPI is told of; empty where there is none."""
    places = (f"{folder}/{name}" for folder in _PMI_FOLDERS for name in _PMI_NAMES)
    return next((view.resolve(place) for place in places if view.kind(place) == "f"), "")


def _join(stated: MpiFacts | None, found: tuple[MpiFacts, ...]) -> MpiFacts | None:
    """The launcher's own words about family and version, and what the files say of the same MPI."""
    if stated is None:
        return replace(found[0], launcher="") if found else None
    if stated.family == UNKNOWN_FAMILY:
        return found[0] if found else stated
    same = next((mpi for mpi in found if mpi.abi == stated.abi and _agree(mpi, stated)), None)
    if same is None:
        return stated
    return replace(
        same,
        family=stated.family,
        version=stated.version or same.version,
        launcher=stated.launcher or same.launcher,
        source=stated.source or same.source,
    )


def _agree(one: MpiFacts, other: MpiFacts) -> bool:
    return not one.numbers or not other.numbers or one.numbers[:2] == other.numbers[:2]


# The MPI of an image as a launch on this host needs it: by files that are here already; nothing is pulled for it.


def read_launched_mpi(image: str, environ: Mapping[str, str], *, program: str = "") -> MpiImage:
    """The MPI of what the user named: a file, or a reference that is unpacked here; of others what the cache knows."""
    path = find_launched_path(image, environ)
    if path is None:
        return _recall(image, environ)

    def read() -> MpiImage:

        return read_path_mpi(path, program=program)

    place = str(path.absolute())
    state = _describe_state(image, place)
    # a program in a directory of this host is read there: the container will see it
    outside = describe_file(program) if "/" in program else ""
    key = "\n".join((state, program, outside)) if state else ""
    return replace(recall_image(place, key, environ, read), name=image)


def find_launched_path(image: str, environ: Mapping[str, str]) -> Path | None:
    """The file or directory on this host that holds the image; None where it is not here yet."""
    path = find_path(image) or find_by_reference(image, os.uname().machine, environ)
    return Path(path) if path else None


def _describe_state(image: str, place: str) -> str:
    """What stays equal as long as the image does; empty for a directory of the user, which shows no changes."""
    if not find_path(image):
        return place  # unpacked on this node, in a directory that is named by its digest
    try:
        return identify(place).state
    except KedgeError:  # the reader says what is wrong
        return ""


def _recall(image: str, environ: Mapping[str, str]) -> MpiImage:
    from kedge.base.reference import Reference
    from kedge.compat.data import learned_path
    from kedge.compat.tables.load import load_tables  # late: most launches have a file
    from kedge.image.workplace import Workplace

    try:
        tables = load_tables(learned_path(environ))
        workplace = Workplace(Settings.load({}, environ))
        return read_image_mpi(Reference.parse(image), workplace, tables, offline=True)
    except KedgeError:  # neither the cache nor the tables know it
        return MpiImage(image)


# What was read of the MPIs of an image or of this host, kept in the user's cache.
#
# To read an image's MPI takes up to a second: libraries of tens of megabytes are inflated and searched. A cache that
# others share is not used: the facts decide what is started.

_RULES = 1  # counts up when images are read in another way


def recall_image(path: str, key: str, environ: Mapping[str, str], read: Callable[[], MpiImage]) -> MpiImage:
    """The image's MPIs as they were read under this key, else as they are read now; without a key always now."""
    facts = _open(path, environ) if key else None
    known = facts.find(f"{VERSION} {_RULES}\n{key}") if facts else None
    with contextlib.suppress(TypeError, AttributeError):  # a row of another kind
        if known is not None:
            mpis = tuple(_make(MpiFacts, each) for each in known["mpis"])
            return cast("MpiImage", _make(MpiImage, known, mpis=mpis))
    image = read()
    if facts:
        facts.keep(f"{VERSION} {_RULES}\n{key}", as_dict(image))
    return image


def recall_host(
    name: str, key: str, environ: Mapping[str, str], read: Callable[[], tuple[MpiFacts, ...]]
) -> tuple[MpiFacts, ...]:
    """Return the remembered MPIs of a host, or read them."""
    return recall_image(f"host:{name}", key, environ, lambda: MpiImage(name, read())).mpis


def describe_file(path: str) -> str:
    """A file and its state, for a key: path, size, inode, and the time that every change moves; empty where none is."""
    try:
        place = Path(path).absolute()
        status = place.stat()
    except (OSError, ValueError):
        return ""
    return f"{place} {status.st_size} {status.st_ctime_ns} {status.st_ino}"


def _open(subject: str, environ: Mapping[str, str]) -> FileFacts | None:
    try:
        settings = Settings.load({}, environ)
    except KedgeError:
        return None
    return None if settings.shared_cache else FileFacts(Layout(settings.cache_directory), subject)


def _make(kind: type[Any], fields: dict[str, Any], **changes: Any) -> Any:
    """Return a value of what JSON made of it."""
    return kind(**{name: _freeze(fields[name]) for name in list_names(kind) if name in fields} | changes)


def _freeze(value: Any) -> Any:
    return tuple(_freeze(each) for each in value) if isinstance(value, list) else value
