# SPDX-License-Identifier: BSD-3-Clause
"""Reads what an image says about itself: of SIF files, bare SquashFS files, directories and image configs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kedge.base.manifest import ImageConfig
from kedge.errors import CorruptImage, FileProblem, UnsupportedFormat
from kedge.image.formats.identify import PROBE, FileKind, find_payload, identify_file, refuse_as_sif
from kedge.image.formats.sif.layout import DataType
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.singularityd.decorate_tree import report_config
from kedge.image.formats.singularityd.documents import SourceRecord
from kedge.image.formats.singularityd.inspect_report import InspectReport, parse_metadata, read_report
from kedge.image.formats.squashfs.view import SquashView
from kedge.system.files import explain, explained
from kedge.system.views import DirectoryView

METADATA = "inspect-metadata.json"
OCI_CONFIG = "oci-config.json"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The report, and the OCI config section if the image has one."""

    report: InspectReport
    oci_config: dict[str, Any] | None = None


def inspect_path(path: Path) -> Inspection:
    """Inspect an image file or sandbox directory."""
    if path.is_dir():
        return _inspect_folder(path)
    with explained(path), path.open("rb") as file:
        return inspect_file(file, str(path))


def inspect_file(file: BinaryIO, where: str) -> Inspection:
    """Inspect an open, seekable image file."""
    kind = identify_file(file)
    if kind is FileKind.SIF:
        return _inspect_sif(SifReader(file, where))
    file.seek(0)
    start = file.read(PROBE)
    if kind is FileKind.SQUASHFS:
        with SquashView(file, find_payload(start)) as view:
            return Inspection(read_report(view, where))
    if kind is FileKind.EXT:
        raise UnsupportedFormat(
            f"cannot inspect {where}: it is {kind.value}",
            hint="convert it where Apptainer is installed: apptainer build NEW.sif OLD.img",
        )
    raise refuse_as_sif(start, where)


def inspect_config(config: ImageConfig, record: SourceRecord) -> InspectReport:
    """The report that the SIF of a remote image would give, from its config alone: nothing is pulled."""
    return report_config(config, record)


def _inspect_folder(path: Path) -> Inspection:
    if not (path / ".singularity.d").exists() and not (path / "bin").exists() and not (path / "usr").exists():
        raise FileProblem(
            f"{path} is a directory, but not a root file system: it has none of .singularity.d, bin and usr",
            hint="name a directory that 'kedge pull --sandbox' made; name an OCI layout as oci:DIRECTORY",
        )
    try:
        return Inspection(read_report(DirectoryView(str(path), is_strict=True), str(path)))
    except OSError as problem:
        raise explain(problem, problem.filename or path) from problem


def _inspect_sif(reader: SifReader) -> Inspection:
    oci_config = _read_json(reader, OCI_CONFIG)
    metadata = reader.find_named(DataType.GENERIC_JSON, METADATA)
    if metadata is not None:
        try:
            return Inspection(parse_metadata(reader.read_object(metadata), reader.where), oci_config)
        except CorruptImage:
            if reader.primary_partition().file_system != 1:
                raise  # no files to fall back on
    partition = reader.root_partition()
    with SquashView(reader.file, partition.offset, partition.size) as view:
        return Inspection(read_report(view, reader.where), oci_config)


def _read_json(reader: SifReader, name: str) -> dict[str, Any] | None:
    descriptor = reader.find_named(DataType.GENERIC_JSON, name)
    if descriptor is None:
        return None
    try:
        value = json.loads(reader.read_object(descriptor))
    except (ValueError, RecursionError):
        raise CorruptImage(f"{reader.where}: {name} is not JSON", context={"object": str(descriptor.id)}) from None
    return value if isinstance(value, dict) else None
