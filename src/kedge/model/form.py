# SPDX-License-Identifier: BSD-3-Clause
"""The forms an image can have on this machine."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """What an image can be written as."""

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
    def is_folder(self) -> bool:
        """Whether the result is a directory and not a file."""
        return self in (Form.SANDBOX, Form.OCI)


_EXTENSIONS = {
    Form.SIF: ".sif",
    Form.SQUASHFS: ".sqsh",
    Form.SANDBOX: "",
    Form.OCI: ".oci",
    Form.OCI_ARCHIVE: ".oci.tar",
    Form.DOCKER_ARCHIVE: ".docker.tar",
}
