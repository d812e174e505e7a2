# SPDX-License-Identifier: BSD-3-Clause
"""What a path or a reference names, before anything is opened."""

from __future__ import annotations

from pathlib import Path

from kedge.formats.sif.identify import ARCHIVES, identify_file
from kedge.posix.files import explained


def is_archive(path: Path) -> bool:
    """Whether a path is what holds layered images: an OCI layout, an OCI archive or a docker-save archive."""
    if path.is_dir():
        return (path / "oci-layout").is_file() and (path / "index.json").is_file()
    if not path.is_file():
        return False
    with explained(path), path.open("rb") as file:
        return identify_file(file) in ARCHIVES
