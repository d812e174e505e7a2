# SPDX-License-Identifier: BSD-3-Clause
"""The `/.singularity.d` directory: what turns the files of an OCI image into something Apptainer runs."""

from __future__ import annotations

from kedge.image.formats.singularityd.decorate_tree import decorate, describe, note_build
from kedge.image.formats.singularityd.documents import ConversionRecord, SourceRecord

__all__ = ["ConversionRecord", "SourceRecord", "decorate", "describe", "note_build"]
