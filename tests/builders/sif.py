# SPDX-License-Identifier: BSD-3-Clause
"""Small SIF files for tests, and the way to the shared real ones."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.writer import SifBuilder
from tests.requirements import require_shared, shared_folder


def fixture_path(name: str) -> Path:
    """A real SIF file; the test is skipped where the shared fixtures are not there."""
    return require_shared(f"fixtures/sif/{name}")


def all_fixtures() -> list[Path]:
    """Every real SIF file there is."""
    return sorted((shared_folder() / "fixtures/sif").glob("*.sif"))


def name_fixtures() -> list[str]:
    """Their names, for `fixture_path`; where none are there, one that makes the test say so."""
    return [path.name for path in all_fixtures()] or ["any.sif"]


def build_sif(objects: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    """A SIF with these objects: type, data, type-dependent field."""
    file = io.BytesIO()
    builder = SifBuilder(file, architecture="amd64", created=1_600_000_000)
    for data_type, data, extra in objects:
        builder.add(DataObject(data_type, data, extra=extra))
    builder.finish()
    return file.getvalue()
