# SPDX-License-Identifier: BSD-3-Clause
"""A SIF from a SIF: the same bytes, or the same objects around a file system that is packed anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from kedge.formats.sif.data_object import DataObject
from kedge.formats.sif.layout import DataType, SifDescriptor
from kedge.formats.sif.reader import SifReader
from kedge.formats.sif.writer import SifBuilder
from kedge.ops.images.write_image import WriteOptions, write_squashfs
from kedge.ops.sources.open_local import open_sif
from kedge.posix.files import atomic_output, copy_range, explained


def repack_sif(source: Path, target: Path, options: WriteOptions) -> None:
    """Copy a SIF; where a codec was asked for, compress its file system with that one."""
    with explained(source), source.open("rb") as original:
        reader = SifReader(original, str(source))
        reader.primary_partition()  # raises where there is nothing to run, as Apptainer does
        with atomic_output(target, mode=0o755, force=options.force) as file:
            if options.recompress or options.fix_permissions:
                _rebuild(reader, source, file, options)
            else:
                copy_range(original, file, 0, os.fstat(original.fileno()).st_size)


def _rebuild(reader: SifReader, source: Path, file: BinaryIO, options: WriteOptions) -> None:
    header, primary = reader.header, reader.root_partition()
    signatures = [each for each in reader.descriptors if each.data_type == DataType.SIGNATURE]
    if signatures:
        options.progress.warn(
            f"{len(signatures)} signature(s) of {source} are left out: they do not fit the new bytes; "
            "sign the result again with 'kedge sign'"
        )
    kept = [each for each in reader.descriptors if each not in signatures]
    numbers = {each.id: place for place, each in enumerate(kept, 1)}
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
