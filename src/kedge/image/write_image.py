# SPDX-License-Identifier: BSD-3-Clause
"""Writes an opened image in any format: SIF, bare SquashFS, sandbox directory, OCI layout, OCI or docker archive.

The target appears whole or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from kedge.base.image_format import ImageFormat
from kedge.base.manifest import ImageConfig
from kedge.base.progress import Progress, Silent
from kedge.base.tree import ContentSink, Node, NodeKind, walk
from kedge.errors import CorruptImage, FaultyImage, UsageError
from kedge.image.formats.check_file import check_file, check_stretch
from kedge.image.formats.go_json import encode_json, encode_text
from kedge.image.formats.oci.writer import convert_to_oci, write_docker_archive, write_layout, write_oci_archive
from kedge.image.formats.sif.layout import DataType, SifDescriptor
from kedge.image.formats.sif.writer import SifBuilder
from kedge.image.formats.singularityd.decorate_tree import decorate, describe, note_build
from kedge.image.formats.singularityd.documents import ConversionRecord
from kedge.image.formats.singularityd.inspect_report import keep_own_parts, read_report
from kedge.image.formats.squashfs.check_image import CheckOptions
from kedge.image.formats.squashfs.view import SquashView
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from kedge.image.layers.sandbox import SandboxSink
from kedge.image.make_layers import LayerOptions, as_stored_image
from kedge.image.sources.image_source import ImageSource, LayeredImage, PackedTree, TreeImage
from kedge.image.workplace import Workplace
from kedge.system.files import atomic_output, copy_range

_BLOCK = 4096
_MAXIMUM_WRITERS = 4  # of a directory: that many keep up with one reader
_FILE_MODES = {ImageFormat.SIF: 0o755}  # a SIF is executable: its first line starts it


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an image is written."""

    codec: str = "zstd"
    threads: int = 1
    force: bool = False
    tag: str | None = None  # what OCI layouts and archives call the image
    temporary_directory: Path | None = None  # where a layer is put together before its size is known
    progress: Progress = field(default_factory=Silent)
    recompress: bool = False  # also what is packed already: a codec was asked for
    verify: bool = False  # read everything back, and compare it with what came in
    fix_permissions: bool = False  # let the owner read and write everything, and enter all directories


def choose_options(workplace: Workplace, *, force: bool = False, tag: str | None = None) -> WriteOptions:
    """How images are written by a command with these settings."""
    settings = workplace.settings
    return WriteOptions(
        codec=settings.compression,
        threads=workplace.threads,
        force=force,
        tag=tag,
        temporary_directory=settings.temporary_directory,
        progress=workplace.progress,
        # a configuration file says how new images are packed, which is no reason to pack others again
        fix_permissions=workplace.fix_permissions,
        verify=workplace.verify,
        recompress=settings.sources["compression"].kind in ("flag", "environment"),
    )


def write_image(target: Path, form: ImageFormat, image: ImageSource, options: WriteOptions) -> None:
    """Write the image; refuses a target that exists unless `options.force`."""
    if options.verify and form not in (ImageFormat.SIF, ImageFormat.SQUASHFS):
        raise UsageError(
            f"--verify does not work with --format {form}", hint="leave --verify out, or write a SIF or SquashFS file"
        )
    if form is ImageFormat.SANDBOX:
        _write_sandbox(target, image, options)
    elif form in (ImageFormat.SIF, ImageFormat.SQUASHFS):
        write: Callable[[BinaryIO, ImageSource, WriteOptions], object] = (
            write_sif if form is ImageFormat.SIF else write_squashfs
        )
        with atomic_output(target, mode=_FILE_MODES.get(form, 0o644), force=options.force) as file:
            write(file, image, options)
    else:
        _write_oci(target, form, image, options)


def write_sif(file: BinaryIO, image: ImageSource, options: WriteOptions) -> None:
    """Write a SIF: the small objects first, then the file system straight at its final place."""
    with naming_input(image):
        _write_sif(file, image, options)


@contextlib.contextmanager
def naming_input(image: ImageSource) -> Iterator[None]:
    """Say from what a faulty image was made, so that whoever mends kedge can make it again."""
    try:
        yield
    except FaultyImage as problem:
        record = image.record
        problem.context.setdefault("input", " ".join(str(part) for part in (record.reference, record.digest) if part))
        raise


def _write_sif(file: BinaryIO, image: ImageSource, options: WriteOptions) -> None:
    objects = _find_objects(image)
    record = image.record
    for warning in objects.warnings:
        options.progress.warn(warning)
    made = f"|{image.manifest.digest}" if record.recipe and isinstance(image, LayeredImage) else ""
    seed = f"{record.kind}|{record.reference}|{record.digest}|{options.codec}{made}".encode()
    builder = SifBuilder(file, architecture=record.platform.architecture, created=record.created, seed=seed)
    builder.add_object(DataType.DEFFILE, objects.definition)
    metadata = builder.add_object(DataType.GENERIC_JSON, objects.inspect_metadata, "inspect-metadata.json")
    if objects.oci_config is not None:
        builder.add_object(DataType.GENERIC_JSON, objects.oci_config, "oci-config.json")
    builder.begin_partition()
    partition = builder.end_partition(write_squashfs(file, image, options))
    if not image.is_decorated or _brings_documents(image):
        kept = _read_own_parts(file, partition, image, objects, options.progress)
        if kept is not None:
            builder.replace_object(metadata, kept)
    builder.finish()


def _brings_documents(image: ImageSource) -> bool:
    return isinstance(image, LayeredImage) and image.has_documents


def _read_own_parts(
    file: BinaryIO, partition: SifDescriptor, image: ImageSource, objects: ConversionRecord, progress: Progress
) -> bytes | None:
    """The document of `inspect`, completed with what only the files tell."""
    file.flush()
    try:
        with SquashView(file, partition.offset, partition.size) as view:
            if _brings_documents(image):
                return encode_text(encode_json(read_report(view, "the image").as_document()))
            return keep_own_parts(objects.inspect_metadata, view, "the image")
    except CorruptImage as problem:
        progress.warn(f"'kedge inspect' will not show the image's help, test and apps: {problem.message}")
        return None


def write_squashfs(file: BinaryIO, image: ImageSource, options: WriteOptions) -> int:
    """Write the file system at the file's position; returns its size."""
    if (
        isinstance(image, TreeImage)
        and image.packed
        and image.is_decorated
        and not (options.recompress or options.fix_permissions)
    ):
        return _copy_packed(image.packed, file, image.record.reference, options)
    with open_writer(file, image, options) as writer:
        size = writer.finish(fill_decorated(image, writer, options))
    for name, count in sorted(writer.skipped_xattrs.items()):
        options.progress.warn(
            f"SquashFS cannot hold the attribute {name.decode(errors='replace')}: left out of {count} files"
        )
    return size


@contextlib.contextmanager
def open_writer(file: BinaryIO, image: ImageSource, options: WriteOptions) -> Iterator[SquashWriter]:
    """A writer of the image's file system, at the file's position."""
    made = SquashOptions(
        codec=options.codec, threads=options.threads, mtime=max(image.record.created, 0), verify=options.verify
    )
    with naming_input(image), SquashWriter(file, made) as writer:
        yield writer
        if writer.compared is not None:
            options.progress.note(f"Verified: {writer.compared} files read back and compared with the input")


def check_copy(file: BinaryIO, where: str, options: WriteOptions, place: tuple[int, int | None] | None = None) -> None:
    """Look at an image that is copied as it is, or at the file system at an offset: it may have been made wrong."""
    looked = CheckOptions(with_contents=options.verify, threads=options.threads)
    made = check_stretch(file, place, where, looked) if place else check_file(file, where, looked)
    if options.verify and made is not None:
        options.progress.note(f"Verified: {made.files} files read in the image, which is copied unchanged")


def _copy_packed(packed: PackedTree, file: BinaryIO, where: str, options: WriteOptions) -> int:
    """Copy a file system to the file's position, byte for byte; returns its size, a multiple of 4096."""
    check_copy(packed.file, where, options, (packed.offset, packed.size))
    copy_range(packed.file, file, packed.offset, packed.size)
    padding = bytes(-packed.size % _BLOCK)
    file.write(padding)
    return packed.size + len(padding)


def _write_sandbox(target: Path, image: ImageSource, options: WriteOptions) -> None:
    """Write a directory; processes of their own make its files, which costs as much as reading the layers."""
    writers = min(options.threads, _MAXIMUM_WRITERS) if options.threads > 1 else 0
    with SandboxSink(target, force=options.force, progress=options.progress, writers=writers) as sink:
        sink.finish(fill_decorated(image, sink, options))


def fill_decorated(image: ImageSource, sink: ContentSink, options: WriteOptions | None = None) -> Node:
    """The image's tree, with `.singularity.d` where the image does not bring its own."""
    root = image.fill(sink)
    if not image.is_decorated:
        decorate(root, sink, _require_config(image), image.record)
    else:
        note_build(root, sink, image.record)
    if options is not None and options.fix_permissions:
        _open_to_owner(root)
    return root


def _open_to_owner(root: Node) -> None:
    """rwX for the owner, as `chmod -R u+rwX` gives it."""
    for node in (root, *(node for _, node in walk(root))):
        if node.kind is NodeKind.DIRECTORY:
            node.mode |= 0o700
        elif node.kind is NodeKind.FILE:
            node.mode |= 0o700 if node.mode & 0o111 else 0o600


def _write_oci(target: Path, form: ImageFormat, image: ImageSource, options: WriteOptions) -> None:
    if options.fix_permissions:
        raise UsageError(
            f"--fix-perms does not work with --format {form}, which keeps the layers unchanged",
            hint="leave --fix-perms out, or write a SIF or a sandbox",
        )
    making = LayerOptions(options.temporary_directory, options.threads, options.progress)
    with as_stored_image(image, options.tag, making) as stored:
        if form is not ImageFormat.DOCKER_ARCHIVE and image.record.kind in ("docker-archive", "docker-daemon"):
            stored = convert_to_oci(stored)  # its manifest was made up here; a registry's own keeps its digest
        if form is ImageFormat.OCI:
            write_layout(target, [stored], force=options.force)
            return
        write = write_oci_archive if form is ImageFormat.OCI_ARCHIVE else write_docker_archive
        with atomic_output(target, force=options.force) as file:
            write(file, [stored])


def _find_objects(image: ImageSource) -> ConversionRecord:
    if isinstance(image, TreeImage) and image.objects is not None:
        return image.objects
    return describe(_require_config(image), image.record)


def _require_config(image: ImageSource) -> ImageConfig:
    if image.config is None:
        raise UsageError("this image has no OCI config to make its run script from")
    return image.config
