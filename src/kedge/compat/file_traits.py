# SPDX-License-Identifier: BSD-3-Clause
"""What is in an image that is a file, a directory or an archive, local or remote: labels, scripts, and files inside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.base.frozen import replace
from kedge.base.platform import Platform
from kedge.base.reference import Reference
from kedge.base.versions import order
from kedge.compat.carried_driver import find_carried, read_branches
from kedge.compat.contents.c_library import LIBRARY_FOLDERS, read_c_library
from kedge.compat.contents.read_traits import read_traits
from kedge.compat.contents.toolkit_version import read_toolkit
from kedge.compat.mpi.read_tree import find_mpis
from kedge.compat.registry_traits import name_reference, read_layered_traits
from kedge.compat.traits import Fact, ImageTraits
from kedge.errors import InvalidReference, UsageError
from kedge.image.clean_config import clean_text
from kedge.image.formats.singularityd.derive_config import read_oci_words
from kedge.image.inspect import Inspection, inspect_path
from kedge.image.inspect_remote import inspect_remote_sif
from kedge.image.open_view import list_words, open_view, read_file_environment
from kedge.image.sources.classify import Source
from kedge.image.sources.image_source import LayeredImage
from kedge.image.sources.open_local import open_any_image
from kedge.image.workplace import Workplace
from kedge.system.elf import identify_machine
from kedge.system.files import explained

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables
    from kedge.system.views import View

_FROM = "org.label-schema.usage.singularity.deffile.from"
_BOOTSTRAP = "org.label-schema.usage.singularity.deffile.bootstrap"
_OWN = ("image ", "file ")  # sources that are the image itself
_BELIEVED_FILES = (
    "os",
    "glibc",
    "driver",
    "compat",
    "compat_branches",
)  # files say what is there, variables may be old


def read_archive_traits(reference: Reference, workplace: Workplace, tables: Tables) -> ImageTraits:
    """Read the manifest and config of an archive or layout on this host."""
    image = open_any_image(reference, workplace)
    try:
        if not isinstance(image, LayeredImage):
            raise UsageError(f"{reference.redacted} is no image that can be explained", hint="give an image, or a file")
        return read_layered_traits(name_reference(reference), image.manifest, image.config, tables)
    finally:
        image.close()


def read_remote_sif_traits(source: Source, workplace: Workplace, tables: Tables, *, offline: bool) -> ImageTraits:
    """Read labels and config of a SIF elsewhere, by ranges; one that is stored is read as a file is."""
    with workplace.open_store() as store:
        remote = inspect_remote_sif(source, workplace, store, offline=offline)
    if remote.path is not None:
        return replace(read_path_traits(remote.path, tables), name=name_reference(source.reference))
    traits = _read_inspection(name_reference(source.reference), remote.inspection, tables, remote.architecture)
    return replace(traits, size=remote.size)


def read_path_traits(path: Path, tables: Tables) -> ImageTraits:
    """Read a SIF, SquashFS file or directory; also files are looked at, which say what variables do not."""
    inspection = inspect_path(path)
    with explained(path), open_view(path) as (view, architecture):
        traits = _read_inspection(str(path), inspection, tables, architecture)
        size = path.stat().st_size if path.is_file() else None
        traits = replace(traits, size=size)
        if view is None:
            return traits
        files, notes = look_inside(view, read_file_environment(inspection))
        machine = traits.architecture or find_machine(view)
    return _join_files(replace(traits, architecture=machine, architectures=(machine,) if machine else ()), files, notes)


def _join_files(traits: ImageTraits, files: Mapping[str, Fact], notes: list[str]) -> ImageTraits:
    """What files say counts where the image's own variables say nothing; of some things it counts always."""
    changes: dict[str, Any] = {}
    for name, fact in files.items():
        ours = getattr(traits, name)
        if not ours or name in _BELIEVED_FILES or not ours.source.startswith(_OWN):
            changes[name] = fact
    if "framework" in files and traits.framework.value not in ("", files["framework"].value):
        changes.pop("framework", None)
        changes.pop("framework_version", None)
    return replace(traits, **changes, notes=(*traits.notes, *notes))


def _read_inspection(name: str, inspection: Inspection, tables: Tables, architecture: str) -> ImageTraits:
    section, report = inspection.oci_config or {}, inspection.report
    words = read_oci_words(report.runscript)
    traits = read_traits(
        name,
        environment=read_file_environment(inspection),
        labels=report.labels,
        history=(),
        tables=tables,
        architecture=architecture,
        origin=_find_origin(inspection),
    )
    entrypoint, command = list_words(section.get("Entrypoint")), list_words(section.get("Cmd"))
    if not entrypoint and not command and report.runscript.strip():
        entrypoint, command = (words[0], words[1]) if words else (["/.singularity.d/runscript"], [])
    return replace(
        traits,
        entrypoint=tuple(clean_text(word) for word in entrypoint[:64]),
        command=tuple(clean_text(word) for word in command[:64]),
    )


def _find_origin(inspection: Inspection) -> str:
    """The registry's reference that the image was made from, as its labels or its definition file have it."""
    labels = inspection.report.labels
    kind, source = labels.get(_BOOTSTRAP, ""), labels.get(_FROM, "")
    if not source:
        header = dict(
            (name.strip().lower(), value.strip())
            for name, colon, value in (line.partition(":") for line in inspection.report.deffile.splitlines()[:50])
            if colon
        )
        kind, source = header.get("bootstrap", ""), header.get("from", "")
    return clean_text(source, 500) if kind in ("docker", "oras") else ""


# What the files of an image say that its config does not: system, C library, Python, CUDA, MPI, the carried driver.
#
# Nothing is run. A few known places are looked at, of each file a bounded part.

_SMALL = 64 << 10
_MOST_NAMES = 20_000  # of one directory
_CUDA = "/usr/local/cuda"
_TOOLKIT = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/cuda/targets/sbsa-linux/lib",
)
_PYTHONS = ("/opt/conda/bin", "/usr/local/bin", "/usr/bin")
_SYSTEMS = {"ubuntu": "Ubuntu", "debian": "Debian", "rocky": "Rocky Linux", "centos": "CentOS", "alpine": "Alpine"}
_PROGRAMS = ("/bin/sh", "/usr/bin/env", "/bin/ls", "/bin/busybox", "/usr/bin/python3")
_PACKAGES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "mxnet": "MXNet"}
_TOOLS = {"horovod": "horovod", "nvidia_dali": "dali", "apex": "apex", "jupyterlab": "jupyterlab"}  # package, fact


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
    yield "glibc", read_c_library(view)
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
    for folder in (*LIBRARY_FOLDERS[:3], "/usr/lib64", *_TOOLKIT):
        names = _list_names(view, folder)
        for fact, start in wanted.items():
            versions = [name.removeprefix(start) for name in names if name.startswith(start)]
            full = [version for version in versions if len(order(version)) >= 3]
            if full:
                version = max(full, key=order)
                yield fact, Fact(clean_text(version, 30), f"file {folder}/{start}{clean_text(version, 30)}")


def _read_mpi(view: View, environment: Mapping[str, str]) -> Fact:
    mpi = next(iter(find_mpis(view, environment)), None)
    return Fact(clean_text(mpi.title, 60), mpi.source) if mpi else Fact()


def _read_packages(view: View) -> Iterator[tuple[str, Fact]]:
    """Frameworks and their tools that are installed as Python packages, by the names of their directories."""
    for library in ("/opt/conda/lib", "/usr/local/lib", "/usr/lib"):
        for python in _list_names(view, library):
            if not re.match(r"python3\.\d+\Z", python):
                continue
            for packages in ("site-packages", "dist-packages"):
                folder = f"{library}/{python}/{packages}"
                for name in _list_names(view, folder):
                    package, _, version = name.removesuffix(".dist-info").partition("-")
                    if not name.endswith(".dist-info") or not order(version):
                        continue
                    found = Fact(clean_text(version, 60), f"file {folder}/{package}")
                    if package in _PACKAGES:
                        yield "framework", Fact(_PACKAGES[package], found.source)
                        yield "framework_version", found
                    tool = _TOOLS.get(package.partition("_cuda")[0])  # nvidia_dali_cuda120
                    if tool:
                        yield tool, found


def _list_notes(view: View) -> list[str]:
    for folder in LIBRARY_FOLDERS:
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
