# SPDX-License-Identifier: BSD-3-Clause
"""The MPI of an image as a launch on this host needs it: by files that are here already; nothing is pulled for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import replace
from kedge.base.image_argument import find_path
from kedge.cluster.mpi import MpiImage
from kedge.compat.known_mpis import describe_file, recall_image
from kedge.errors import KedgeError
from kedge.image.image_file import identify
from kedge.image.node_cache import find_by_reference
from kedge.system.settings import Settings


def read_launched_mpi(image: str, environ: Mapping[str, str], *, program: str = "") -> MpiImage:
    """The MPI of what the user named: a file, or a reference that is unpacked here; of others what the cache knows."""
    path = find_launched_path(image, environ)
    if path is None:
        return _recall(image, environ)

    def read() -> MpiImage:
        from kedge.compat.mpi_of_image import read_path_mpi  # late: most launches are of an image that was read before

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
    from kedge.compat.mpi_of_image import read_image_mpi
    from kedge.compat.tables.load import load_tables  # late: most launches have a file
    from kedge.image.workplace import Workplace

    try:
        tables = load_tables(learned_path(environ))
        workplace = Workplace(Settings.load({}, environ))
        return read_image_mpi(Reference.parse(image), workplace, tables, offline=True)
    except KedgeError:  # neither the cache nor the tables know it
        return MpiImage(image)
