# SPDX-License-Identifier: BSD-3-Clause
"""What is in an image that is a file, a directory or an archive, local or remote: labels, scripts, and files inside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.base.frozen import replace
from kedge.base.reference import Reference
from kedge.compat.contents.read_traits import read_traits
from kedge.compat.image_files import find_machine, look_inside
from kedge.compat.registry_traits import name_reference, read_layered_traits
from kedge.compat.traits import Fact, ImageTraits
from kedge.errors import UsageError
from kedge.image.clean_config import clean_text
from kedge.image.formats.singularityd.derive_config import read_oci_words
from kedge.image.inspect import Inspection, inspect_path
from kedge.image.inspect_remote import inspect_remote_sif
from kedge.image.open_view import list_words, open_view, read_file_environment
from kedge.image.sources.classify import Source
from kedge.image.sources.image_source import LayeredImage
from kedge.image.sources.open_local import open_any_image
from kedge.image.workplace import Workplace
from kedge.system.files import explained

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables

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
