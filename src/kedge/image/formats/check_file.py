# SPDX-License-Identifier: BSD-3-Clause
"""Looks at a whole image file: the root file system of a SIF, or a bare SquashFS image."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from kedge.errors import CorruptImage, HostileImage, UnsupportedFormat
from kedge.image.formats.identify import PROBE, FileKind, find_payload, identify_bytes
from kedge.image.formats.sif.layout import FileSystem
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.squashfs.check_image import CheckedImage, CheckOptions, check_image

AGAIN = "pull, build or copy the image again"


def check_file(file: BinaryIO, where: str, options: CheckOptions) -> CheckedImage | None:
    """Raise `CorruptImage` for an image that readers cannot make sense of; None where kedge cannot read its root.

    `where` is what errors call the file.
    """
    file.seek(0)
    start = file.read(PROBE)
    kind = identify_bytes(start)
    if kind is FileKind.SQUASHFS:
        return check_stretch(file, (find_payload(start), None), where, options)
    if kind is not FileKind.SIF:
        raise UnsupportedFormat(f"{where} is {kind}, not an image", hint="name a SIF or SquashFS file")
    root = next((entry for entry in SifReader(file, where).descriptors if entry.is_primary), None)
    if root is None or root.file_system != FileSystem.SQUASHFS:  # empty, encrypted, OCI
        return None
    return check_stretch(file, (root.offset, root.size), where, options)


def check_stretch(file: BinaryIO, place: tuple[int, int | None], where: str, options: CheckOptions) -> CheckedImage:
    """Check a SquashFS image at an offset and of a size."""
    try:
        return check_image(file, *place, options)
    except (CorruptImage, HostileImage) as problem:
        raise type(problem)(
            f"{where} is broken: {problem.message}", context={"image": where, **problem.context}, hint=AGAIN
        ) from problem


def find_fault(path: Path, options: CheckOptions) -> str:
    """Return what is wrong with an image file; empty where nothing is, or it is no image that kedge can look at."""
    try:
        with path.open("rb") as file:
            check_file(file, str(path), options)
    except (CorruptImage, HostileImage) as problem:
        return problem.message
    except (UnsupportedFormat, OSError):
        return ""
    return ""
