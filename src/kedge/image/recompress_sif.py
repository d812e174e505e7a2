# SPDX-License-Identifier: BSD-3-Clause
"""Copies a SIF: byte for byte, or with its file system compressed again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.layout import DataType, SifDescriptor
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.sif.writer import SifBuilder
from kedge.image.sources.open_local import open_sif
from kedge.image.write_image import WriteOptions, check_copy, write_squashfs
from kedge.system.files import atomic_output, copy_range, explained


def repack_sif(source: Path, target: Path, options: WriteOptions) -> None:
    """Copy a SIF; with a codec in the options, compress its file system with it."""
    with explained(source), source.open("rb") as original:
        reader = SifReader(original, str(source))
        reader.primary_partition()  # raises where there is nothing to run, as Apptainer does
        with atomic_output(target, mode=0o755, force=options.force) as file:
            if options.recompress or options.fix_permissions:
                _rebuild(reader, source, file, options)
            else:
                check_copy(original, str(source), options)
                copy_range(original, file, 0, os.fstat(original.fileno()).st_size)


def _rebuild(reader: SifReader, source: Path, file: BinaryIO, options: WriteOptions) -> None:
    header, primary = reader.header, reader.root_partition()
    signatures = [entry for entry in reader.descriptors if entry.data_type == DataType.SIGNATURE]
    if signatures:
        options.progress.warn(
            f"left out {len(signatures)} signature(s) of {source}, which are not valid for the new bytes. "
            "Sign the result: kedge sign IMAGE"
        )
    kept = [entry for entry in reader.descriptors if entry not in signatures]
    numbers = {entry.id: number for number, entry in enumerate(kept, 1)}
    builder = SifBuilder(
        file,
        architecture=header.architecture,
        created=header.created,
        launch=header.launch.rstrip(b"\0"),
        seed=header.identity + options.codec.encode(),
    )
    for descriptor in kept:
        if descriptor is primary:
            image = open_sif(source, options.threads)
            builder.begin_partition(descriptor.name)
            try:
                builder.end_partition(write_squashfs(file, image, options))
            finally:
                image.close()
        else:
            builder.add(_as_object(reader, descriptor, numbers))
    builder.finish()


def _as_object(reader: SifReader, descriptor: SifDescriptor, numbers: dict[int, int]) -> DataObject:
    link = descriptor.link
    return DataObject(
        descriptor.data_type,
        reader.open_object(descriptor),
        descriptor.name,
        group=descriptor.group,
        link=link if descriptor.links_group else numbers.get(link, 0),
        links_group=descriptor.links_group,
        extra=descriptor.extra,
    )
