# SPDX-License-Identifier: BSD-3-Clause
"""The `/.singularity.d` directory: what turns the files of an OCI image into something Apptainer runs."""

from __future__ import annotations

from kedge.formats.singularityd.record import ConversionRecord, SourceRecord
from kedge.formats.singularityd.tree import decorate, describe

__all__ = ["ConversionRecord", "SourceRecord", "decorate", "describe"]
