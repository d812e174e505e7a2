# SPDX-License-Identifier: BSD-3-Clause
"""The digest of an image in a registry: by a request for its manifest, without a download."""

from __future__ import annotations

from kedge.base.digest import Digest
from kedge.base.reference import Reference, Transport
from kedge.errors import InvalidReference
from kedge.image.sources.resolve import resolve
from kedge.image.workplace import Workplace


def ask_digest(reference: Reference, workplace: Workplace) -> Digest:
    """Return the digest of the manifest that a pull would take for the workplace's platform."""
    if reference.transport not in (Transport.DOCKER, Transport.ORAS):
        raise InvalidReference(
            f"'{reference}' is not in a registry",
            hint="name an image, such as docker://nvcr.io/nvidia/pytorch:24.03-py3",
        )
    with workplace.open_store() as store:
        return resolve(reference, workplace, store).digest
