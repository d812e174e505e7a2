# SPDX-License-Identifier: BSD-3-Clause
"""Push: an image on this machine into a registry, as layers (`docker://`) or as a SIF file (`oras://`).

Blobs that the registry has already are not sent again; the manifest goes last, so nobody sees half an image.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kedge.errors import UsageError
from kedge.formats.oci.stored import StoredImage, StoredLayer
from kedge.formats.sif.reader import SifReader
from kedge.model.digest import Digest
from kedge.model.manifest import OCI_MANIFEST, Descriptor
from kedge.model.reference import Reference, Transport
from kedge.ops.layered import as_stored_image
from kedge.ops.open_local import open_local_image
from kedge.ops.workplace import Workplace
from kedge.posix.files import explained
from kedge.registry.client import RegistryClient
from kedge.registry.oras import SIF_CONFIG_BYTES, sif_config, sif_layer, sif_manifest

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push sent."""

    source: str
    target: str
    digest: Digest
    sent: int  # bytes
    reused: int  # bytes that the registry had

    def as_dict(self) -> dict[str, object]:
        """The result as `--json` prints it."""
        return {
            "source": self.source,
            "target": self.target,
            "digest": str(self.digest),
            "sent": self.sent,
            "reused": self.reused,
        }


def push(source: Reference, target: Reference, workplace: Workplace) -> Pushed:
    """Send the image; raises before anything is sent when the target cannot be pushed to."""
    if target.transport not in (Transport.DOCKER, Transport.ORAS):
        raise UsageError(
            f"an image cannot be pushed to {target}",
            hint="push to docker://REGISTRY/NAME:TAG (layers) or oras://REGISTRY/NAME:TAG (a SIF file)",
        )
    if target.digest is not None:
        raise UsageError(f"{target} names a digest; a push is given a tag", hint="the digest follows from the content")
    with workplace.open_access() as access:
        sender = _Sender(RegistryClient(target.registry, access), target, workplace)
        if target.transport is Transport.ORAS:
            return sender.push_sif(source)
        image = open_local_image(source, workplace)
        try:
            with as_stored_image(image, target.tag, workplace.settings.temporary_directory) as stored:
                return sender.push_layers(source, stored)
        finally:
            image.close()


class _Sender:
    """One push: counts what was sent and what was there."""

    def __init__(self, client: RegistryClient, target: Reference, workplace: Workplace) -> None:
        self._client = client
        self._target = target
        self._workplace = workplace
        self._sent = 0
        self._reused = 0

    def push_layers(self, source: Reference, image: StoredImage) -> Pushed:
        """Layers first, then the config, then the manifest."""
        for layer, descriptor in zip(image.layers, image.manifest.layers, strict=True):
            self._send_layer(layer, descriptor)
        self._send(image.manifest.config, lambda: io.BytesIO(image.config))
        return self._finish(source, image.manifest.raw, image.manifest.media_type)

    def push_sif(self, source: Reference) -> Pushed:
        """The SIF as one blob."""
        path = Path(source.path)
        if source.transport is not Transport.FILE:
            raise UsageError(f"oras:// takes a SIF file, not {source}", hint="make one first: kedge pull image.sif …")
        with explained(path), path.open("rb") as file:
            SifReader(file, str(path))
            layer = sif_layer(_hash(file), os.fstat(file.fileno()).st_size)
        self._send(sif_config(), lambda: io.BytesIO(SIF_CONFIG_BYTES))
        self._send(layer, lambda: path.open("rb"))
        return self._finish(source, sif_manifest(layer, path.name), OCI_MANIFEST)

    def _send_layer(self, layer: StoredLayer, descriptor: Descriptor) -> None:
        if self._client.has_blob(self._target.repository, descriptor.digest):
            self._reused += descriptor.size
            return
        # an upload may have to be begun again from the middle, which a stream cannot: the layer is spooled
        place = self._workplace.settings.temporary_directory
        with explained(place), tempfile.NamedTemporaryFile(prefix="kedge-push-", dir=place) as spool:
            for piece in layer.open():
                spool.write(piece)
            spool.flush()
            self._send(descriptor, lambda: Path(spool.name).open("rb"))

    def _send(self, descriptor: Descriptor, open_content: Callable[[], BinaryIO]) -> None:
        task = self._workplace.progress.task(f"push {descriptor.digest.hex[:12]}", descriptor.size)
        was_sent = self._client.upload_blob(self._target.repository, descriptor, open_content, advance=task.advance)
        task.finish()
        if was_sent:
            self._sent += descriptor.size
        else:
            self._reused += descriptor.size

    def _finish(self, source: Reference, manifest: bytes, media_type: str) -> Pushed:
        digest = self._client.put_manifest(self._target.repository, self._target.tag or "latest", manifest, media_type)
        return Pushed(str(source), str(self._target), digest, self._sent, self._reused)


def _hash(file: BinaryIO) -> Digest:
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return Digest("sha256", digest.hexdigest())
