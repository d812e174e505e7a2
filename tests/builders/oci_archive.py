# SPDX-License-Identifier: BSD-3-Clause
"""Small OCI archives made by hand: one layer, any config. For comparing kedge with programs that read them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of the layer: a directory without data or target, a file with data, a link with a target."""

    name: str
    data: bytes | None = None
    target: str = ""
    mode: int = 0o755


@dataclass(slots=True)
class OciArchive:
    """An image under construction."""

    entries: list[Entry]
    config: dict[str, Any]
    architecture: str
    created: str = "2024-03-05T07:08:09Z"
    blobs: dict[str, bytes] = field(default_factory=dict)

    def config_bytes(self) -> bytes:
        """The image config document."""
        return json.dumps(
            {
                "architecture": self.architecture,
                "os": "linux",
                "created": self.created,
                "config": self.config,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_hash(self.layer())}"]},
            }
        ).encode()

    def layer(self) -> bytes:
        """The layer as a plain tar."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for entry in self.entries:
                info = tarfile.TarInfo(entry.name)
                info.mode, info.mtime = entry.mode, 1_700_000_000
                if entry.target:
                    info.type, info.linkname = tarfile.SYMTYPE, entry.target
                elif entry.data is None:
                    info.type = tarfile.DIRTYPE
                else:
                    info.size = len(entry.data)
                tar.addfile(info, io.BytesIO(entry.data) if entry.data is not None else None)
        return out.getvalue()

    def write(self, path: Path) -> None:
        """Write the archive, with the directory entries that strict readers want."""
        config = self._keep(self.config_bytes(), "application/vnd.oci.image.config.v1+json")
        layer = self._keep(gzip.compress(self.layer(), 1, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
        manifest = {"schemaVersion": 2, "config": config, "layers": [layer]}
        entry = self._keep(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
        entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
        files = {
            "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
            "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
            **{f"blobs/sha256/{name}": data for name, data in self.blobs.items()},
        }
        with tarfile.open(path, "w") as tar:
            for folder in ("blobs", "blobs/sha256"):
                info = tarfile.TarInfo(folder)
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(data), 0o644
                tar.addfile(info, io.BytesIO(data))

    def _keep(self, data: bytes, media_type: str) -> dict[str, Any]:
        self.blobs[_hash(data)] = data
        return {"mediaType": media_type, "digest": f"sha256:{_hash(data)}", "size": len(data)}


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
