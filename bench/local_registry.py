# SPDX-License-Identifier: BSD-3-Clause
"""docker-registry on loopback, for as long as something is measured."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_certificate(storage: Path) -> tuple[Path, Path]:
    """A key and a certificate for loopback, beside the storage."""
    key, certificate = storage.with_suffix(".key"), storage.with_suffix(".pem")
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(make, check=True, capture_output=True)
    return key, certificate


def store_manifests(storage: Path, repository: str, manifests: Mapping[str, bytes], blobs: Iterable[bytes]) -> None:
    """Put manifests, by tag or digest, and blobs where docker-registry keeps them: it takes none without layers."""
    top = storage / "docker/registry/v2"
    place = top / "repositories" / repository

    def write(path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    for data in (*manifests.values(), *blobs):
        name = hashlib.sha256(data).hexdigest()
        write(top / f"blobs/sha256/{name[:2]}/{name}/data", data)
        write(place / f"_layers/sha256/{name}/link", f"sha256:{name}".encode())
    for tag, data in manifests.items():
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        write(place / f"_manifests/revisions/{digest.replace(':', '/')}/link", digest.encode())
        if ":" not in tag:
            write(place / f"_manifests/tags/{tag}/current/link", digest.encode())
            write(place / f"_manifests/tags/{tag}/index/{digest.replace(':', '/')}/link", digest.encode())


@contextlib.contextmanager
def registry(storage: Path, *, tls: bool = False, log_requests: bool = False) -> Iterator[str]:
    """docker-registry on loopback for the length of the block; with `tls` by a certificate that nobody signed.

    What it logs is beside its storage.
    """
    port = free_port()
    config = storage.with_suffix(".tls.yml" if tls else ".yml")
    storage.mkdir(exist_ok=True)
    http = f"addr: 127.0.0.1:{port}"
    if tls:
        key, certificate = make_certificate(storage)
        http += f", tls: {{certificate: {certificate}, key: {key}}}"
    config.write_text(
        f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: {str(not log_requests).lower()}}}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {storage}}}}}\nhttp: {{{http}}}\n"
    )
    with config.with_suffix(".log").open("w") as log:
        server = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
