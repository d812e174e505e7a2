# SPDX-License-Identifier: BSD-3-Clause
"""Opens images of this host: SIF and SquashFS files, directories, OCI layouts, archives, its own programs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kedge.base.manifest import ImageConfig, parse_config
from kedge.base.platform import Platform
from kedge.base.progress import Progress
from kedge.base.reference import Reference, Transport
from kedge.base.tree import ContentSink, ContentSource, Node, NodeKind, find
from kedge.errors import FileProblem, InvalidReference, KedgeError, NoMatchingPlatform, UsageError
from kedge.image.formats.enroot import read_section
from kedge.image.formats.go_json import encode_json, encode_text
from kedge.image.formats.identify import PROBE, find_payload, refuse_as_sif
from kedge.image.formats.oci.docker_archive import DockerArchive, save_from_daemon
from kedge.image.formats.oci.open_stored import open_images
from kedge.image.formats.sif.layout import DataType
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.singularityd.derive_config import derive_section, read_oci_words
from kedge.image.formats.singularityd.documents import ConversionRecord, SourceRecord, add_build, render_definition
from kedge.image.formats.singularityd.inspect_report import InspectReport, read_report
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.host_programs.packer import describe_host, pack_host
from kedge.image.host_programs.python_environment import StartsPython, start_on_host
from kedge.image.layers.directory_tree import FolderOptions, read_folder
from kedge.image.layers.layer_source import LayerSource
from kedge.image.sources.classify import SourceKind, classify
from kedge.image.sources.fetch_layers import image_platform, parse_time
from kedge.image.sources.image_source import ImageSource, LayeredImage, PackedTree, TreeImage, choose_reading
from kedge.image.sources.resolve import compare_platform
from kedge.image.tree_view import TreeView
from kedge.image.workplace import Workplace
from kedge.system.elf import identify_machine
from kedge.system.files import explained

_PROGRAM_DIRECTORIES = (b"usr/bin", b"bin", b"usr/sbin", b"sbin", b"usr/local/bin", b"usr/lib", b"lib", b"")
_TRIES = 50  # files looked at per directory


def open_local_image(
    reference: Reference, workplace: Workplace, start_python: StartsPython = start_on_host
) -> ImageSource:
    """Open whatever `reference` names, to use it; the caller closes it. `start_python` is for `pack_host`.

    An image for another architecture is warned about or refused by the same rule as in registries.
    """
    image = open_any_image(reference, workplace, start_python)
    try:
        compare_platform(image.record.platform, reference, workplace)
    except BaseException:
        image.close()
        raise
    return image


def open_any_image(
    reference: Reference, workplace: Workplace, start_python: StartsPython = start_on_host
) -> ImageSource:
    """Open whatever `reference` names, to look at it, for any architecture; the caller closes it."""
    source, path = classify(reference), Path(reference.path)
    if not source.is_local:
        raise UsageError(f"{reference.redacted} is not on this host", hint=f"kedge pull {reference.redacted}")
    match source.kind:
        case SourceKind.PROGRAMS:
            return _HostImage(reference, workplace, start_python)
        case SourceKind.ENGINE:
            return _open_daemon(reference, workplace)
        case SourceKind.ARCHIVE:
            with explained(path):
                return _open_archive(path, reference, workplace)
        case SourceKind.DIRECTORY:
            with explained(path):
                return _open_folder(path, workplace.progress)
        case SourceKind.SIF_FILE:
            return open_sif(path, workplace.threads, workplace.progress)
        case SourceKind.SQUASHFS_FILE:
            return _open_squashfs(path, workplace.threads)
        case _:
            raise _refuse_path(path)


def _refuse_path(path: Path) -> KedgeError:
    if path.is_file():
        with explained(path), path.open("rb") as file:
            return refuse_as_sif(file.read(PROBE), str(path))
    if os.path.lexists(path):
        return FileProblem(f"{path} is neither a file nor a directory")
    return FileProblem(
        f"{path} does not exist",
        hint="check the spelling; an image in a registry is named like docker://ubuntu:22.04",
    )


def open_sif(path: Path, threads: int = 1, progress: Progress | None = None) -> TreeImage:
    """The file tree of a SIF's primary partition, with the documents beside it; `progress` is told what is not."""
    with _opened(path) as (file, closing):
        reader = SifReader(file, str(path))
        partition = reader.root_partition()
        if progress is not None:
            _tell_left_out(reader, progress)
        image = SquashReader(file, partition.offset, partition.size, threads=threads)
        closing.callback(image.close)
        root = image.read_tree()
        architecture = reader.header.architecture
        record = SourceRecord("localimage", str(path), None, Platform(architecture), max(reader.header.created, 0))
        documents = _read_documents(reader, root, image)
        config = _parse_section(documents.oci_config, architecture)
        packed = PackedTree(file, partition.offset, partition.size)
        return TreeImage(
            root=root,
            source=image,
            record=record,
            config=config,
            objects=documents,
            packed=packed,
            on_close=closing.pop_all().close,
        )


def _tell_left_out(reader: SifReader, progress: Progress) -> None:
    kinds = [descriptor.data_type for descriptor in reader.descriptors]
    others, signatures = kinds.count(DataType.PARTITION) - 1, kinds.count(DataType.SIGNATURE)
    if others:
        progress.warn(
            f"{reader.where}: kedge copies only the primary partition, not the {others} other(s) (overlay or data)"
        )
    if signatures:
        progress.warn(f"{reader.where}: its {signatures} signature(s) are not copied: only SIF files hold signatures")


def _open_squashfs(path: Path, threads: int = 1) -> TreeImage:
    """The file tree of a bare SquashFS file."""
    with _opened(path) as (file, closing):
        offset = find_payload(file.read(PROBE))
        image = SquashReader(file, offset, threads=threads)
        closing.callback(image.close)
        tree = _describe_tree(image.read_tree(), image, path, max(image.superblock.mtime, 0))
        tree.packed = PackedTree(file, offset, image.superblock.used)
        tree.on_close = closing.pop_all().close
        return tree


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, contextlib.ExitStack]]:
    """The file, and what closes it when the block fails; on success the block takes the stack over."""
    with contextlib.ExitStack() as closing:
        with explained(path):
            file = closing.enter_context(path.open("rb"))
        yield file, closing


def _open_folder(path: Path, progress: Progress) -> TreeImage:
    # an ordinary user's files are root's inside an image, as mksquashfs -all-root has it
    root, source = read_folder(path, FolderOptions(all_root=os.geteuid() != 0, progress=progress))
    labels = find(root, b".singularity.d/labels.json")
    return _describe_tree(root, source, path, max((labels or root).mtime, 0))


def _describe_tree(root: Node, source: ContentSource, path: Path, created: int) -> TreeImage:
    """A tree that came without documents: they are read from its `.singularity.d`, or made where it has none."""
    platform = _find_architecture(root, source) or Platform.host()
    record = SourceRecord("localimage", str(path), None, platform, created)
    if find(root, b".singularity.d") is None:
        section = read_section(_view_tree(root, source))
        made = _parse_section(encode_text(encode_json(section)), platform.architecture) if section else None
        return TreeImage(root, source, record, made or ImageConfig(platform), is_decorated=False)
    report = _read_tree_report(root, source, str(path))
    definition = report.deffile or render_definition(record)
    derived = encode_text(encode_json(derive_section(report)[0])) if read_oci_words(report.runscript) else None
    documents = ConversionRecord(encode_text(definition), encode_text(encode_json(report.as_document())), derived)
    return TreeImage(root, source, record, _parse_section(derived, platform.architecture), documents)


def _read_tree_report(root: Node, source: ContentSource, where: str) -> InspectReport:
    return read_report(_view_tree(root, source), where)


def _view_tree(root: Node, source: ContentSource) -> TreeView:
    return TreeView(lambda path: find(root, path), source)


def _read_documents(reader: SifReader, root: Node, source: ContentSource) -> ConversionRecord:
    """The documents of a SIF, as they are; a missing one is made from the files."""
    definition = reader.find_type(DataType.DEFFILE)
    metadata = reader.find_named(DataType.GENERIC_JSON, "inspect-metadata.json")
    config = reader.find_named(DataType.GENERIC_JSON, "oci-config.json")
    if metadata is None:  # Singularity before 3.5 kept it in the file system only
        report = _read_tree_report(root, source, reader.where)
    return ConversionRecord(
        reader.read_object(definition) if definition else f"bootstrap: localimage\nfrom: {reader.where}\n\n".encode(),
        reader.read_object(metadata) if metadata else encode_text(encode_json(report.as_document())),
        reader.read_object(config) if config else None,
    )


def _parse_section(section: bytes | None, architecture: str) -> ImageConfig | None:
    """A SIF keeps only the `config` part of the image config."""
    if section is None:
        return None
    return parse_config(b'{"architecture":"%s","os":"linux","config":%s}' % (architecture.encode(), section or b"{}"))


def _open_daemon(reference: Reference, workplace: Workplace) -> ImageSource:
    """Let the engine save the image; the archive has no name any more and goes with its last user."""
    place = workplace.settings.temporary_directory
    with explained(place):
        file = tempfile.NamedTemporaryFile(prefix="kedge-daemon-", dir=place)
    save_from_daemon(reference, file)  # type: ignore[arg-type]
    file.flush()
    image = _open_archive(Path(file.name), reference, workplace)
    closing = contextlib.ExitStack()
    closing.callback(file.close)
    if image.on_close is not None:
        closing.callback(image.on_close)
    image.on_close = closing.close
    return image


def _open_archive(path: Path, reference: Reference, workplace: Workplace) -> LayeredImage:
    """An image in an OCI layout, an OCI archive or a docker-save archive."""
    prefers_docker = reference.transport in (Transport.DOCKER_ARCHIVE, Transport.DOCKER_DAEMON)
    tag = None if reference.transport in (Transport.DOCKER_DAEMON, Transport.FILE) else reference.tag
    images = open_images(path, prefer_docker=prefers_docker, temporary=workplace.settings.temporary_directory)
    is_docker = isinstance(images, DockerArchive)
    try:
        stored = images.image(tag, workplace.platform)
        config = stored.parsed_config()
    except BaseException:
        images.close()
        raise
    layers = tuple(LayerSource(x.name, x.digest, x.diff_id, x.open, x.size) for x in stored.layers)
    kind = "docker-archive" if is_docker else "oci" if path.is_dir() else "oci-archive"
    record = SourceRecord(
        kind,
        reference.name if reference.transport is Transport.DOCKER_DAEMON else _source_path(reference),
        stored.manifest.digest,
        image_platform(config, workplace.platform),
        parse_time(config.created),
    )
    record = add_build(record, config)
    options = choose_reading(workplace)
    return LayeredImage(
        manifest=stored.manifest,
        config_bytes=stored.config,
        config=config,
        layers=layers,
        record=record,
        options=options,
        on_close=images.close,
    )


def _source_path(reference: Reference) -> str:
    return reference.path + (f":{reference.tag}" if reference.tag and reference.transport is not Transport.FILE else "")


def _find_architecture(root: Node, source: ContentSource) -> Platform | None:
    """The platform in the ELF header of the first program found, as in Apptainer; None in a tree without programs."""
    for node in _list_programs(root):
        name = identify_machine(next(source.chunks(node), b"")[:20])
        try:
            if name:
                return Platform.parse(name)
        except InvalidReference:  # a machine that no image is made for
            continue
    return None


def _list_programs(root: Node) -> Iterator[Node]:
    for folder in _PROGRAM_DIRECTORIES:
        place = find(root, folder)
        files = [n for _, n in place.sorted_children() if n.kind is NodeKind.FILE and n.size > 64] if place else []
        yield from [node for node in files if node.mode & 0o111][:_TRIES]


class _HostImage:
    """Programs of this host with everything they need."""

    is_decorated = False

    def __init__(self, reference: Reference, workplace: Workplace, start_python: StartsPython) -> None:
        self._programs = reference.programs
        self._start_python = start_python
        self._progress = workplace.progress
        self.config = describe_host(reference.programs)
        _refuse_other_machine(self.config.platform, workplace)
        # no time of packing: the same programs give the same image
        self.record = SourceRecord("host", ",".join(reference.programs), None, self.config.platform, 0)

    def fill(self, sink: ContentSink) -> Node:
        """Pack them now."""
        packed = pack_host(self._programs, sink, self._start_python)
        for name in packed.missing:
            self._progress.detail(f"left out: {name}")
        self._progress.detail(f"packed {packed.files} files of this host")
        return packed.root

    def close(self) -> None:
        """Do nothing: no file is held open."""


def _refuse_other_machine(platform: Platform, workplace: Workplace) -> None:
    if workplace.platform.architecture != platform.architecture:
        raise NoMatchingPlatform(
            f"'host:' packs programs of this host, which are for {platform.architecture}, "
            f"not for {workplace.platform.architecture}",
            hint="leave --arch out",
        )
