# SPDX-License-Identifier: BSD-3-Clause
"""Which image a short name means, and which of its tags are worth judging: one for each version, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.base.versions import order
from kedge.compat.contents.read_traits import read_traits
from kedge.compat.contents.tag_filters import list_architectures
from kedge.compat.contents.tag_names import read_tag
from kedge.compat.tables.load import normalize_image
from kedge.compat.tables.rows import NgcRelease

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits

_ALIASES = {"torch": "pytorch", "tf": "tensorflow", "triton": "tritonserver", "rapids": "rapidsai", "hpc-sdk": "nvhpc"}
_NVIDIA = "nvcr.io/nvidia/"
_JETSON = "-igpu"


def resolve_image(text: str, tables: Tables) -> str:
    """`nvcr.io/nvidia/pytorch` of `pytorch`; names with a slash stay what they are."""
    name = normalize_image(text)
    if "/" in name:
        return name
    name = _ALIASES.get(name, name)
    near = [image for image in tables.images if image.rpartition("/")[2] == name]
    return near[0] if near else _NVIDIA + name


def list_candidates(image: str, target: Target, tables: Tables, tags: Sequence[str] | None) -> list[NgcRelease]:
    """One row for each version, newest first; where the registry's tags are given, only those that exist."""
    rows = {row.tag: row for row in tables.list_releases(image)}
    if tags is not None:
        rows = {tag: rows.get(tag) or NgcRelease(image, tag) for tag in tags if order(tag)}
    is_jetson = any(gpu.kind == "embedded" for gpu in target.gpus)
    best: dict[tuple[int, ...], NgcRelease] = {}
    for row in rows.values():
        if row.tag.endswith(_JETSON) != is_jetson or not _has_architecture(row, target.architecture):
            continue
        version = order(row.tag)
        if version not in best or _prefer(row) > _prefer(best[version]):
            best[version] = row
    return [best[version] for version in sorted(best, reverse=True)]


def read_candidate(row: NgcRelease, architecture: str, tables: Tables) -> ImageTraits:
    """What the tables and the tag itself tell of an image."""
    name = f"{row.image}:{row.tag}"
    traits = read_traits(name, environment={}, labels={}, history=(), tables=tables, architecture=architecture)
    return replace(traits, architectures=list_architectures(row, read_tag(row.tag, row.image)))


def tells_architecture(row: NgcRelease, architecture: str) -> bool:
    """Whether a row says that there is an image for an architecture; all have one for amd64."""
    listed = _list_architectures(row)
    return architecture in ("", "amd64") or architecture in listed or f"{architecture}:" in row.capabilities


def _has_architecture(row: NgcRelease, architecture: str) -> bool:
    listed = _list_architectures(row)
    return not architecture or not listed or architecture in listed


def _list_architectures(row: NgcRelease) -> list[str]:
    """Return the architectures of a row that says `arch amd64,arm64` in its notes."""
    words = next((part.strip() for part in row.notes.split(";") if part.strip().startswith("arch ")), "")
    return words.removeprefix("arch ").split(",") if words else []


def _prefer(row: NgcRelease) -> tuple[bool, bool, bool, bool, tuple[int, ...], int]:
    """Return a sort key of tags of one version: Ubuntu, the newest; compiler; TensorFlow 2; Python 3; the shortest."""
    words = row.tag.split("-")
    return (
        "py2" not in words and "tf1" not in words,
        not row.is_end_of_life,
        any(word.startswith("ubuntu") for word in words) or not any("ubuntu" in word for word in words),
        "devel" in words,
        order(row.ubuntu),
        -len(row.tag),
    )
