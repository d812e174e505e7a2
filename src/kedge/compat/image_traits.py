# SPDX-License-Identifier: BSD-3-Clause
"""What is in an image, wherever it is: in a registry (its config), a file, a directory, an archive. Nothing is pulled.

What the registry cannot be asked is answered from the tables, and said so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.base.reference import Reference
from kedge.compat.contents.read_traits import read_traits, split_name
from kedge.compat.contents.table_facts import TABLE_ONLY
from kedge.compat.contents.tag_filters import list_architectures
from kedge.compat.contents.tag_names import read_tag
from kedge.compat.registry_traits import name_reference, read_registry_traits
from kedge.compat.traits import ImageTraits
from kedge.errors import FileProblem, ImageNotFound, KedgeError, NetworkFailed, NoSpace, RateLimited
from kedge.image.sources.classify import Source, SourceKind, classify
from kedge.image.sources.resolve import resolve
from kedge.image.workplace import Workplace

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables


def read_image_traits(
    reference: Reference, workplace: Workplace, tables: Tables, *, offline: bool = False, prefer: str = ""
) -> ImageTraits:
    """Return what is in the image that `reference` names; for the architecture `prefer`, unless the settings name one.

    Where it is there for others only, one of them is read: its `architecture` says which.
    """
    source = classify(reference)
    if source.is_local:
        return _read_local(source, workplace, tables)
    if source.kind is SourceKind.REMOTE_SIF:
        return _read_remote_sif(source, workplace, tables, offline=offline)
    try:
        return _read_anywhere(source, workplace, tables, offline=offline, prefer=prefer)
    except (NetworkFailed, RateLimited, ImageNotFound) as problem:
        known = read_table_traits(reference, tables, workplace.settings.architecture or prefer)
        if known is None or (isinstance(problem, ImageNotFound) and not offline):
            raise
        return replace(known, notes=(_explain_fallback(reference, problem, offline=offline), *known.notes))


def read_table_traits(reference: Reference, tables: Tables, architecture: str = "") -> ImageTraits | None:
    """What the tables alone know of a tag for one architecture; None where they do not have it."""
    name = name_reference(reference)
    image, tag = split_name(name)
    row = tables.find_release(image, tag) if tag else None
    if row is None:
        from kedge.compat.contents.known_traits import read_known_traits  # late: most images are in the tables

        return read_known_traits(name, tables, architecture)
    traits = read_traits(name, environment={}, labels={}, history=(), tables=tables, architecture=architecture)
    return replace(traits, architectures=list_architectures(row, read_tag(tag, image)))


def _explain_fallback(reference: Reference, problem: KedgeError, *, offline: bool) -> str:
    if offline:
        return f"{TABLE_ONLY} (image not cached, --offline)"
    return f"{TABLE_ONLY}: kedge could not ask {reference.registry} ({problem.message})"


def _read_anywhere(source: Source, workplace: Workplace, tables: Tables, *, offline: bool, prefer: str) -> ImageTraits:
    """Read the traits with the store; where it is full or closed without keeping anything: nobody asked for that."""
    settings = workplace.settings
    try:
        return _read_registry(source, workplace, tables, offline=offline, prefer=prefer)
    except (FileProblem, NoSpace) as problem:
        if offline or settings.disable_cache:
            raise
        workplace.progress.warn(f"{problem.message}; nothing is cached")
        passing = replace(workplace, settings=replace(settings, disable_cache=True))
        return _read_registry(source, passing, tables, offline=offline, prefer=prefer)


def _read_registry(source: Source, workplace: Workplace, tables: Tables, *, offline: bool, prefer: str) -> ImageTraits:
    wants = bool(workplace.settings.architecture)
    if prefer and not wants:
        workplace = replace(workplace, settings=replace(workplace.settings, architecture=prefer))
    with workplace.open_store() as store:
        source = source.look_up(
            lambda: resolve(source.reference, workplace, store, offline=offline, any_platform=not wants)
        )
        if source.layers:
            return read_registry_traits(source.layers, store, tables)
        return _read_remote_sif(source, workplace, tables, offline=offline)


# Files are read with much code that the config of a registry's image does not need, so it is loaded late.


def _read_local(source: Source, workplace: Workplace, tables: Tables) -> ImageTraits:
    from kedge.compat.file_traits import read_archive_traits, read_path_traits

    if source.path:
        return read_path_traits(source.path, tables)
    return read_archive_traits(source.reference, workplace, tables)


def _read_remote_sif(source: Source, workplace: Workplace, tables: Tables, *, offline: bool) -> ImageTraits:
    from kedge.compat.file_traits import read_remote_sif_traits

    return read_remote_sif_traits(source, workplace, tables, offline=offline)
