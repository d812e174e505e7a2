# SPDX-License-Identifier: BSD-3-Clause
"""Searches the images of a library server, and deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.reference import Reference, Transport
from kedge.errors import InvalidReference, UsageError
from kedge.image.sources.fetch_sif import choose_library

if TYPE_CHECKING:
    from kedge.image.registry.library import LibraryFind
    from kedge.image.workplace import Workplace

_SHORTEST = 3  # characters; libraries take no shorter query
_SCHEME = "library://"


def parse_library(text: str) -> Reference:
    """Read `[library://]ENTITY/COLLECTION/NAME:TAG`."""
    scheme, separator, _ = text.partition("://")
    if separator and scheme != "library":
        raise InvalidReference(
            f'unsupported protocol scheme "{scheme}" for delete',
            hint="kedge deletes images of a library only: library://ENTITY/COLLECTION/NAME:TAG",
        )
    reference = Reference.parse(text if separator else f"{_SCHEME}{text}")
    assert reference.transport is Transport.LIBRARY
    return reference


def name_image(reference: Reference) -> str:
    """The image as the library knows it."""
    return reference.name if reference.tag or reference.digest else f"{reference.name}:latest"


def delete_image(reference: Reference, workplace: Workplace) -> None:
    """Delete an image from its library."""
    with workplace.open_access() as access:
        client = choose_library(reference, workplace, access.transport)
        client.delete(name_image(reference), workplace.platform.architecture)


def search_library(words: str, workplace: Workplace, *, only_signed: bool = False) -> list[LibraryFind]:
    """The images of the library in use whose names have the words."""
    if len(words) < _SHORTEST:
        raise UsageError(f"bad query '{words}'. You must search for at least {_SHORTEST} characters")
    with workplace.open_access() as access:
        client = choose_library(Reference.parse(f"{_SCHEME}any"), workplace, access.transport)
        return client.search(words, workplace.platform.architecture, only_signed=only_signed)
