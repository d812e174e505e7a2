# SPDX-License-Identifier: BSD-3-Clause
"""The header and objects of a SIF file as text, in the form siftool and `apptainer sif` made familiar, and for JSON."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kedge.image.formats.sif.layout import (
    CRYPTO_EXTRA,
    CRYPTO_FORMAT_NAMES,
    CRYPTO_MESSAGE_NAMES,
    FILE_SYSTEM_NAMES,
    HASH_NAMES,
    NO_TIME,
    PARTITION_TYPE_NAMES,
    SBOM_EXTRA,
    SBOM_NAMES,
    DataType,
    Header,
    SifDescriptor,
    decode_text,
)
from kedge.image.formats.sif.reader import SifReader, describe_type

_RULE = "-" * 78


def format_list(descriptors: Sequence[SifDescriptor]) -> str:
    """Return a list of the objects, one line each."""
    lines = [_RULE, "ID   |GROUP   |LINK    |SIF POSITION (start-end)  |TYPE", _RULE]
    for descriptor in descriptors:
        group = str(descriptor.group or "NONE")
        link = f"{descriptor.link:<4}(G)" if descriptor.links_group else str(descriptor.link or "NONE")
        position = f"{descriptor.offset}-{descriptor.end}"
        lines.append(f"{descriptor.id:<5}|{group:<8}|{link:<8}|{position:<26}|{_describe_object(descriptor)}")
    return "\n".join(lines) + "\n"


def _describe_object(descriptor: SifDescriptor) -> str:
    """The type with what matters about it: `FS (Squashfs/*System/arm64)`."""
    kind = describe_type(descriptor.data_type)
    details = "/".join(value for _, value in _list_details(descriptor))
    has_details = descriptor.data_type in (
        DataType.PARTITION,
        DataType.SIGNATURE,
        DataType.CRYPTO_MESSAGE,
        DataType.SBOM,
    )
    if descriptor.data_type == DataType.SIGNATURE:
        details = _name(HASH_NAMES, descriptor.hash_type)
    return f"{kind} ({details})" if has_details else kind


def format_header(header: Header) -> str:
    """The header, one field per line; what was never set is left out."""
    fields = [
        ("Launch Script", _decode_launch(header.launch)),
        ("Version", decode_text(header.version)),
        ("Primary Architecture", "" if header.architecture == "unknown" else header.architecture),
        ("ID", str(uuid.UUID(bytes=header.identity)) if any(header.identity) else ""),
        ("Created At", format_time(header.created)),
        ("Modified At", format_time(header.modified)),
        ("Descriptors Free", str(header.descriptors_free)),
        ("Descriptors Total", str(header.descriptors_total)),
        ("Descriptors Offset", str(header.table_offset)),
        ("Descriptors Size", format_size(header.table_size)),
        ("Data Offset", str(header.data_offset)),
        ("Data Size", format_size(header.data_size)),
    ]
    return _align(fields, "", 1)


def format_object(descriptor: SifDescriptor) -> str:
    """Return the text of one object, one field per line."""
    link = f"{descriptor.link} (G)" if descriptor.links_group else str(descriptor.link or "NONE")
    fields = [
        ("Data Type", describe_type(descriptor.data_type)),
        ("ID", str(descriptor.id)),
        ("Group ID", str(descriptor.group or "NONE")),
        ("Linked ID", link),
        ("Offset", str(descriptor.offset)),
        ("Size", str(descriptor.size)),
        ("Created At", format_time(descriptor.created)),
        ("Modified At", format_time(descriptor.modified)),
        ("Name", descriptor.name),
        *_list_details(descriptor),
    ]
    return _align(fields, "  ", 2)


def list_json(reader: SifReader) -> dict[str, Any]:
    """Header and objects for --json."""
    return {
        "header": header_json(reader.header),
        "objects": [object_json(descriptor) for descriptor in reader.descriptors],
    }


def header_json(header: Header) -> dict[str, Any]:
    """The header for --json; times are unix seconds, or null."""
    return {
        "launch": _decode_launch(header.launch),
        "version": decode_text(header.version),
        "architecture": header.architecture,
        "id": str(uuid.UUID(bytes=header.identity)),
        "created": _time_json(header.created),
        "modified": _time_json(header.modified),
        "descriptors_free": header.descriptors_free,
        "descriptors_total": header.descriptors_total,
        "descriptors_offset": header.table_offset,
        "descriptors_size": header.table_size,
        "data_offset": header.data_offset,
        "data_size": header.data_size,
    }


def object_json(descriptor: SifDescriptor) -> dict[str, Any]:
    """Return one object for --json."""
    fields: dict[str, Any] = {
        "id": descriptor.id,
        "type": describe_type(descriptor.data_type),
        "type_code": descriptor.data_type,
        "group": descriptor.group or None,
        "link": descriptor.link or None,
        "link_is_group": descriptor.links_group,
        "offset": descriptor.offset,
        "size": descriptor.size,
        "created": _time_json(descriptor.created),
        "modified": _time_json(descriptor.modified),
        "name": descriptor.name,
    }
    return fields | {label.lower().replace(" ", "_"): value for label, value in _list_details(descriptor)}


def _list_details(descriptor: SifDescriptor) -> list[tuple[str, str]]:
    """What the type-dependent field says, as label and text."""
    if descriptor.data_type == DataType.PARTITION:
        return [
            ("Filesystem Type", _name(FILE_SYSTEM_NAMES, descriptor.file_system)),
            ("Partition Type", _name(PARTITION_TYPE_NAMES, descriptor.partition_type)),
            ("Architecture", descriptor.architecture),
        ]
    if descriptor.data_type == DataType.SIGNATURE:
        entity = descriptor.entity.hex().upper() if any(descriptor.entity) else ""
        return [("Hash Type", _name(HASH_NAMES, descriptor.hash_type)), ("Entity", entity)]
    if descriptor.data_type == DataType.CRYPTO_MESSAGE:
        form, message = CRYPTO_EXTRA.unpack_from(descriptor.extra)
        return [
            ("Format Type", _name(CRYPTO_FORMAT_NAMES, form)),
            ("Message Type", _name(CRYPTO_MESSAGE_NAMES, message)),
        ]
    if descriptor.data_type == DataType.SBOM:
        return [("Format", _name(SBOM_NAMES, SBOM_EXTRA.unpack_from(descriptor.extra)[0]))]
    if descriptor.data_type in (DataType.OCI_BLOB, DataType.OCI_ROOT_INDEX):
        return [("Digest", decode_text(descriptor.extra))]
    return []


def _name(names: dict[int, str], value: int) -> str:
    return names.get(value, "Unknown" if value == 0 else f"Unknown ({value})")


def _decode_launch(field: bytes) -> str:
    """The launch script without its newline."""
    return decode_text(field.split(b"\0", 1)[0].rstrip(b"\n"))


def format_time(seconds: int) -> str:
    """`2021-08-02 21:41:28 +0000 UTC`; nothing for a time that was never set."""
    if seconds == NO_TIME:
        return ""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return f"{seconds} seconds after 1970"
    return f"{moment.year:04}-{moment:%m-%d %H:%M:%S} +0000 UTC"


def _time_json(seconds: int) -> int | None:
    return None if seconds == NO_TIME else seconds


def format_size(size: int) -> str:
    """`27 KiB`: rounded to whole units."""
    amount, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.0f} {units[0]}"


def _align(fields: Sequence[tuple[str, str]], indent: str, gap: int) -> str:
    shown = [(label, value) for label, value in fields if value]
    width = max(len(label) for label, _ in shown) + 1 + gap
    return "".join(f"{indent}{f'{label}:':<{width}}{value}\n" for label, value in shown)
