# SPDX-License-Identifier: BSD-3-Clause
"""The documents about a converted image: where it came from, its labels and its definition file.

Labels are the image's own, and those that say when, from what and by what it was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kedge.base.digest import Digest
from kedge.base.frozen import frozen, replace
from kedge.base.manifest import ImageConfig
from kedge.base.platform import Platform
from kedge.base.release import VERSION
from kedge.image.formats.go_json import clean_text, encode_json

BUILD_KEY = "kedge.build.v1"  # in an OCI config; readers pass over keys that the format does not know
_LONGEST_RECIPE = 512 << 10  # bytes in a config, which registries and readers limit
_SCHEMA = "org.label-schema"
# names of our own, because strftime's follow the user's language
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


@frozen
class SourceRecord:
    """The source of a conversion: all that is written into the image comes from this and the image config."""

    kind: str  # the transport: docker, oci, oci-archive, ...
    reference: str  # without the transport: nvcr.io/nvidia/pytorch:24.03-py3
    digest: Digest | None  # of the manifest
    platform: Platform
    created: int  # unix seconds, from the image config
    recipe: str = ""  # the text of the definition file or Dockerfile that built the image
    build: str = ""  # JSON: bases, steps and arguments of the build


@frozen
class ConversionRecord:
    """The documents of a converted image, and what could not be carried over."""

    definition: bytes
    inspect_metadata: bytes
    oci_config: bytes | None  # None when the image has no config
    warnings: tuple[str, ...] = ()


def write_build(recipe: str, note: Mapping[str, Any]) -> dict[str, Any]:
    """What an OCI config says of the build of its image, under BUILD_KEY."""
    fits = len(recipe) <= _LONGEST_RECIPE
    return {"note": dict(note), **({"recipe": recipe} if fits else {})}


def add_build(record: SourceRecord, config: ImageConfig) -> SourceRecord:
    """The record with what the config says of the build; anybody may have written it, so odd values are left out."""
    said = config.document.get(BUILD_KEY)
    if not isinstance(said, dict):
        return record
    note, recipe = said.get("note"), said.get("recipe")
    return replace(
        record,
        recipe=clean_text(recipe) if isinstance(recipe, str) else "",
        build=clean_text(json.dumps(note, indent=1, ensure_ascii=False)) if isinstance(note, dict) and note else "",
    )


def render_definition(record: SourceRecord) -> str:
    """The definition file that would make this image again; of an image that was built, its recipe."""
    if record.recipe:
        return record.recipe
    reference = " ".join(record.reference.split("\n"))  # a file name may have a newline, a header line may not
    return f"bootstrap: {record.kind}\nfrom: {reference}\n\n"


def make_labels(config: ImageConfig, record: SourceRecord) -> dict[str, str]:
    """All labels, sorted; the automatic ones win over the image's."""
    labels = {
        **config.labels,
        f"{_SCHEMA}.schema-version": "1.0",
        f"{_SCHEMA}.build-date": format_build_date(record.created),
        f"{_SCHEMA}.build-arch": config.platform.architecture,
        f"{_SCHEMA}.usage.kedge.version": VERSION,
        f"{_SCHEMA}.usage.singularity.deffile.bootstrap": record.kind,
        f"{_SCHEMA}.usage.singularity.deffile.from": record.reference,
        "org.opencontainers.image.base.name": record.reference,
    }
    if record.digest is not None:
        labels["org.opencontainers.image.base.digest"] = str(record.digest)
    return {clean_text(name): clean_text(labels[name]) for name in sorted(labels)}


def render_labels(labels: dict[str, str]) -> str:
    """The text of labels.json: tabs, sorted keys, no newline at the end."""
    return encode_json(dict(sorted(labels.items())), indent="\t")


def format_build_date(created: int) -> str:
    """`Monday_2_August_2021_21:4:8_UTC`: Apptainer's form, which pads nothing."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=created)
    except OverflowError:
        moment = datetime(1970, 1, 1, tzinfo=UTC)
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day}_{moment.day}_{month}_{moment.year}_{moment.hour}:{moment.minute}:{moment.second}_UTC"
