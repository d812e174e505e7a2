# SPDX-License-Identifier: BSD-3-Clause
"""Where an image came from, and the documents about it that stand in a SIF beside its file system."""

from __future__ import annotations

from dataclasses import dataclass

from kedge.model.digest import Digest
from kedge.model.platform import Platform


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The source of a conversion: all that is written into the image comes from this and the image config."""

    kind: str  # the transport: docker, oci, oci-archive, ...
    reference: str  # without the transport: nvcr.io/nvidia/pytorch:24.03-py3
    digest: Digest | None  # of the manifest
    platform: Platform
    created: int  # unix seconds, from the image config


@dataclass(frozen=True, slots=True)
class ConversionRecord:
    """The documents of a converted image, and what could not be carried over."""

    definition: bytes
    inspect_metadata: bytes
    oci_config: bytes | None  # None when the image has no config
    warnings: tuple[str, ...] = ()


def render_definition(record: SourceRecord) -> str:
    """The definition file that would make this image again."""
    reference = " ".join(record.reference.split("\n"))  # a file name may have a newline, a header line may not
    return f"bootstrap: {record.kind}\nfrom: {reference}\n\n"
