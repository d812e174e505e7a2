# SPDX-License-Identifier: BSD-3-Clause
"""Open whatever holds images on disk, by what it is and not by what it is called.

`docker save` since version 25 writes files that are both kinds at once, and people mix up `oci-archive:` and
`docker-archive:`; the wanted kind is taken where it is there, else the other.
"""

from __future__ import annotations

from pathlib import Path

from kedge.errors import FileProblem
from kedge.image.formats.oci.docker_archive import DockerArchive
from kedge.image.formats.oci.layout import OciLayout, is_layout
from kedge.image.formats.oci.stored_image import BlobDirectory, StoredImages
from kedge.image.formats.oci.tar_archive import TarArchive


def open_images(path: Path, *, prefer_docker: bool = False, temporary: Path | None = None) -> StoredImages:
    """Open an OCI layout directory, an OCI archive or a docker-save archive, compressed or not; the caller closes it.

    A compressed archive is inflated into an unnamed file in `temporary`, by default in TMPDIR.
    """
    if not path.exists():
        raise FileProblem(f"{path}: no such file or directory", hint="check the spelling of the path")
    if path.is_dir():
        folder = BlobDirectory(path)
        return DockerArchive(folder) if folder.has("manifest.json") and not is_layout(folder) else OciLayout.open(path)
    archive = TarArchive.open(path, temporary)
    try:
        if is_layout(archive) and not (prefer_docker and archive.has("manifest.json")):
            return OciLayout(archive)
        return DockerArchive(archive)
    except BaseException:
        archive.close()
        raise
