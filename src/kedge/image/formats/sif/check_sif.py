# SPDX-License-Identifier: BSD-3-Clause
"""Reads a SIF back that kedge wrote: header, descriptors, and where they say that objects are."""

from __future__ import annotations

from typing import BinaryIO

from kedge.errors import CorruptImage, FaultyImage, UnsupportedFormat
from kedge.image.formats.sif.layout import DataType
from kedge.image.formats.sif.reader import SifReader

_PAGE = 4096  # file systems begin at a multiple of it, or no kernel mounts them


def check_written(file: BinaryIO) -> None:
    """Raise `FaultyImage` where the file is not what a writer of SIF files makes."""
    file.flush()
    try:
        _check_places(SifReader(file, "the new SIF"))
    except (CorruptImage, UnsupportedFormat) as problem:
        raise FaultyImage.of(problem) from problem


def _check_places(reader: SifReader) -> None:
    header, objects = reader.header, reader.descriptors
    if header.descriptors_free != header.descriptors_total - len(objects):
        raise _damaged("descriptors_free", f"is {header.descriptors_free}, with {len(objects)} objects")
    if header.data_offset + header.data_size != reader.size:
        raise _damaged("data_size", f"is {header.data_size}, and the file has {reader.size} bytes")
    for entry in objects:
        if entry.offset < header.data_offset:
            raise _damaged("offset", f"of object {entry.id} is {entry.offset}, before the data")
        if entry.data_type == DataType.PARTITION and entry.offset % _PAGE:
            raise _damaged("offset", f"of partition {entry.id} is {entry.offset}, no multiple of {_PAGE}")
        if entry.is_primary and entry.architecture != header.architecture:
            raise _damaged("architecture", f"is {header.architecture}, and that of the root is {entry.architecture}")


def _damaged(field: str, problem: str) -> CorruptImage:
    return CorruptImage(f"SIF header or descriptors: {field} {problem}", context={"field": field})
