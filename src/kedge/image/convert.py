# SPDX-License-Identifier: BSD-3-Clause
"""Convert: an image on this host into another format, or the same format with another compression."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kedge.base.frozen import JsonValue
from kedge.base.image_format import ImageFormat
from kedge.base.reference import Reference
from kedge.errors import FileProblem, UsageError
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.layout import DataType, SifDescriptor
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.sif.writer import SifBuilder
from kedge.image.output_name import ImageOutput, choose_tag, read_output
from kedge.image.sources.classify import SourceKind, classify
from kedge.image.sources.fetch_sif import check_architecture
from kedge.image.sources.image_source import ImageSource, TreeImage
from kedge.image.sources.open_local import open_any_image, open_local_image, open_sif
from kedge.image.workplace import Workplace
from kedge.image.write_image import WriteOptions, check_copy, choose_options, write_image, write_squashfs
from kedge.system.files import atomic_output, copy_range, explained


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """What to convert, where to, and as what."""

    source: Reference
    target: ImageOutput
    force: bool = False
    is_data: bool = False  # files that are no image, and become none


@dataclass(frozen=True, slots=True)
class Converted(JsonValue):
    """What a conversion did."""

    json_names = (("form", "format"),)

    source: str
    output: Path
    form: ImageFormat
    size: int | None  # of a file; None for a directory


def read_target(text: str, form: ImageFormat | None = None, tag: str | None = None) -> ImageOutput:
    """The target of a conversion: as `read_output`, and a name without any ending is a directory."""
    output = read_output(text, form)
    named = output.form or (ImageFormat.SANDBOX if "." not in Path(text).name else None)
    return ImageOutput(output.path, ImageOutput(output.path, named).require_form(), tag or output.tag)


def convert(request: ConvertRequest, workplace: Workplace, *, dry_run: bool = False) -> Converted:
    """Convert the image; the target appears whole or not at all."""
    source, target, form = request.source, request.target, request.target.require_form()
    origin = classify(source)
    if not origin.is_local:
        raise UsageError(f"{source.redacted} is not on this host", hint=f"kedge pull --format {form} {source.redacted}")
    if not Path(source.path).exists() and target.path.exists():
        words = " ".join(shlex.quote(str(path)) for path in (target.path, source.path))
        raise UsageError(
            f"{source.path} does not exist, and the output {target.path} does",
            hint=f"the image to read comes first: kedge convert {words}",
        )
    if request.is_data:
        _require_data(origin.kind, form, source)
    target.refuse_existing(force=request.force)
    if dry_run:
        open_local_image(source, workplace).close()
        return Converted(str(source), target.path, form, None)
    tag = choose_tag(source, form, target.tag)
    options = choose_options(workplace, force=request.force, tag=tag)
    if form is ImageFormat.SIF and origin.kind is SourceKind.SIF_FILE:
        check_architecture(Path(source.path), source, workplace)
        repack_sif(Path(source.path), target.path, options)
    else:
        image = open_data(source, workplace) if request.is_data else open_local_image(source, workplace)
        try:
            write_image(target.path, form, image, options)
        finally:
            image.close()
    size = None if form.is_directory else target.path.stat().st_size
    return Converted(str(source), target.path, form, size)


def open_data(source: Reference, workplace: Workplace) -> ImageSource:
    """The files of a directory or SquashFS file, with nothing added that would make them an image."""
    image = open_any_image(source, workplace)
    if isinstance(image, TreeImage):
        image.is_decorated = True
    return image


def _require_data(kind: SourceKind, form: ImageFormat, source: Reference) -> None:
    if not Path(source.path).exists():
        raise FileProblem(f"{source.path} does not exist", context={"path": source.path})
    is_file_tree = kind in (SourceKind.DIRECTORY, SourceKind.SQUASHFS_FILE)
    if not is_file_tree or form not in (ImageFormat.SQUASHFS, ImageFormat.SANDBOX):
        raise UsageError(
            f"--data converts directories and SquashFS files into each other, not {source.redacted} to {form}",
            hint="kedge convert --data DIRECTORY data.sqsh, and back: kedge convert --data data.sqsh DIRECTORY",
        )


# Copies a SIF: byte for byte, or with its file system compressed again.


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
