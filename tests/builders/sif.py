# SPDX-License-Identifier: BSD-3-Clause
"""Small SIF files for tests, and the way to the shared real ones."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kedge.formats.sif.objects import DataObject
from kedge.formats.sif.writer import SifBuilder

SHARED = Path(os.environ.get("KEDGE_SHARED", Path(__file__).parents[2].parent / "shared"))


def fixture_path(name: str) -> Path:
    """A real SIF file; the test is skipped where the shared fixtures are not there."""
    path = SHARED / "fixtures" / "sif" / name
    if not path.exists():
        pytest.skip(f"no shared fixture {path}")
    return path


def all_fixtures() -> list[Path]:
    """Every real SIF file there is."""
    return sorted((SHARED / "fixtures" / "sif").glob("*.sif"))


def build_sif(objects: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    """A SIF with these objects: type, data, type-dependent field."""
    file = io.BytesIO()
    builder = SifBuilder(file, architecture="amd64", created=1_600_000_000)
    for data_type, data, extra in objects:
        builder.add(DataObject(data_type, data, extra=extra))
    builder.finish()
    return file.getvalue()
