# SPDX-License-Identifier: BSD-3-Clause
"""The labels of a converted image: its own, and those that say when, from what and by what it was made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kedge.formats.singularityd.go_json import clean_text, encode_json
from kedge.formats.singularityd.record import SourceRecord
from kedge.model.manifest import ImageConfig
from kedge.release import VERSION

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
