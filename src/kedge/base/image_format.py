# SPDX-License-Identifier: BSD-3-Clause
"""The formats in which kedge writes images."""

from __future__ import annotations

from enum import StrEnum


class ImageFormat(StrEnum):
    """A format in which an image can be written."""

    SIF = "sif"
    SQUASHFS = "squashfs"
    SANDBOX = "sandbox"
    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"

    @property
    def extension(self) -> str:
        """What the default output name ends in."""
        return _EXTENSIONS[self]

    @property
    def is_directory(self) -> bool:
        """Whether the result is a directory and not a file."""
        return self in (ImageFormat.SANDBOX, ImageFormat.OCI)


_EXTENSIONS = {
    ImageFormat.SIF: ".sif",
    ImageFormat.SQUASHFS: ".sqsh",
    ImageFormat.SANDBOX: "",
    ImageFormat.OCI: ".oci",
    ImageFormat.OCI_ARCHIVE: ".oci.tar",
    ImageFormat.DOCKER_ARCHIVE: ".docker.tar",
}
