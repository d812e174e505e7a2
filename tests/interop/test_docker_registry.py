# SPDX-License-Identifier: BSD-3-Clause
"""The real docker-registry and skopeo: what one pushes the other pulls, with logins, TLS and broken connections.

Needs docker-registry, skopeo, htpasswd and openssl.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import OCI_MANIFEST, Descriptor, Manifest
from kedge.errors import AuthenticationFailed, ImageNotFound, NetworkFailed
from kedge.image.registry.client import RegistryClient
from kedge.image.registry.oras import SIF_CONFIG_BYTES, sif_config, sif_layer, sif_manifest
from tests.builders.certificates import Authority, make_authority
from tests.builders.docker_registry import DockerRegistry, docker_registry
from tests.builders.registry_access import Waits, make_access
from tests.fakes.proxy import CuttingProxy

pytestmark = pytest.mark.service
PASSWORD = "htpasswd-p4ssword"
LAYERS = (random.Random(1).randbytes(3_200_000), b"second layer")  # skopeo compresses; random bytes stay as large
ENVIRON = {"KEDGE_DOCKER_USERNAME": "user", "KEDGE_DOCKER_PASSWORD": PASSWORD}


def write_layout(folder: Path) -> str:
    """An OCI layout with two uncompressed layers; returns skopeo's name for it."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def store(data: bytes, media_type: str) -> dict[str, object]:
        digest = Digest.of(data)
        (blobs / digest.hex).write_bytes(data)
        return {"mediaType": media_type, "digest": str(digest), "size": len(data)}

    layers = [store(layer, "application/vnd.oci.image.layer.v1.tar") for layer in LAYERS]
    rootfs = {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": store(config, "application/vnd.oci.image.config.v1+json"),
        "layers": layers,
    }
    entry = store(json.dumps(manifest).encode(), OCI_MANIFEST)
    entry["annotations"] = {"org.opencontainers.image.ref.name": "1.0"}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return f"oci:{folder}:1.0"


@pytest.fixture(params=["plain", "htpasswd", "tls"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DockerRegistry]:
    authority = make_authority(tmp_path / "ca") if request.param == "tls" else None
    users = {"user": PASSWORD} if request.param != "plain" else None
    with docker_registry(tmp_path, htpasswd=users, tls=authority) as running:
        yield running


def client_of(registry: DockerRegistry, home: Path, host: str | None = None) -> RegistryClient:
    bundle = registry.authority.certificate if registry.authority else None
    access = make_access(home, ENVIRON if registry.users else None, ca_bundle=bundle)
    return RegistryClient(host or registry.host, access)


def read_all(client: RegistryClient, repository: str, descriptor: Descriptor, offset: int = 0) -> bytes:
    with client.open_blob(repository, descriptor, offset) as stream:
        assert stream.offset == offset
        return b"".join(stream)


def test_client_pulls_what_skopeo_pushed(registry: DockerRegistry, tmp_path: Path) -> None:
    registry.copy_in(write_layout(tmp_path / "layout"), "team/app:1.0")
    client = client_of(registry, tmp_path)
    manifest = client.get_manifest("team/app", "1.0")
    assert isinstance(manifest, Manifest)
    assert client.head_manifest("team/app", "1.0") == manifest.digest
    assert client.get_manifest("team/app", str(manifest.digest)) == manifest
    assert client.read_blob("team/app", manifest.config, 10_000).startswith(b"{")
    for layer in manifest.layers:
        data = read_all(client, "team/app", layer)
        assert Digest.of(data) == layer.digest
        assert read_all(client, "team/app", layer, 7) == data[7:]
    assert list(client.list_tags("team/app")) == ["1.0"]
    with pytest.raises(ImageNotFound):
        client.get_manifest("team/app", "2.0")


def test_skopeo_pulls_what_client_pushed(registry: DockerRegistry, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    write_layout(layout)
    client = client_of(registry, tmp_path)
    index = json.loads((layout / "index.json").read_text())
    raw = (layout / "blobs/sha256" / index["manifests"][0]["digest"].removeprefix("sha256:")).read_bytes()
    document = json.loads(raw)
    for entry in [document["config"], *document["layers"]]:
        descriptor = Descriptor(entry["mediaType"], Digest.parse(entry["digest"]), entry["size"])
        path = layout / "blobs/sha256" / descriptor.digest.hex
        assert client.upload_blob("ours/app", descriptor, lambda path=path: path.open("rb")) is True
        assert client.upload_blob("ours/app", descriptor, lambda path=path: path.open("rb")) is False
        assert client.upload_blob("ours/copy", descriptor, lambda path=path: path.open("rb"), "ours/app") is False
    client.put_manifest("ours/app", "1.0", raw, OCI_MANIFEST)
    client.put_manifest("ours/copy", "1.0", raw, OCI_MANIFEST)
    for name in ("app", "copy"):
        registry.copy_out(f"ours/{name}:1.0", f"dir:{tmp_path / name}")
        for layer in LAYERS:
            assert (tmp_path / name / Digest.of(layer).hex).read_bytes() == layer


def test_client_pushes_sif_for_oras(registry: DockerRegistry, tmp_path: Path) -> None:
    content = b"#!/usr/bin/env run-singularity\n" + bytes(5000)
    path = tmp_path / "image.sif"
    path.write_bytes(content)
    config = tmp_path / "config"
    config.write_bytes(SIF_CONFIG_BYTES)
    client = client_of(registry, tmp_path)
    layer = sif_layer(Digest.of(content), len(content))
    client.upload_blob("sifs/app", sif_config(), lambda: config.open("rb"))
    client.upload_blob("sifs/app", layer, lambda: path.open("rb"))
    client.put_manifest("sifs/app", "1.0", sif_manifest(layer, path.name), OCI_MANIFEST)
    manifest = client.get_manifest("sifs/app", "1.0")
    assert isinstance(manifest, Manifest)
    assert manifest.is_sif
    assert read_all(client, "sifs/app", manifest.layers[0]) == content
    assert registry.inspect("sifs/app:1.0")["config"] == sif_config().as_json()


def test_download_resumes_after_the_connection_is_cut(tmp_path: Path) -> None:
    with docker_registry(tmp_path) as registry:
        registry.copy_in(write_layout(tmp_path / "layout"), "team/app:1.0")
        manifest = client_of(registry, tmp_path).get_manifest("team/app", "1.0")
        assert isinstance(manifest, Manifest)
        layer = manifest.layers[0]
        with CuttingProxy(registry.port, [None, None, 500_000, 900_000]) as proxy:
            client = client_of(registry, tmp_path, proxy.host)  # the first two ask whether it listens, and for https
            received = bytearray()
            breaks = 0
            while len(received) < layer.size:
                with client.open_blob("team/app", layer, len(received)) as stream:
                    assert stream.offset == len(received)
                    try:
                        for piece in stream:
                            received += piece
                    except NetworkFailed as problem:
                        breaks += bool(problem.is_transient)
            assert breaks == 2
            assert Digest.of(bytes(received)) == layer.digest


def test_upload_resumes_after_the_connection_is_cut(tmp_path: Path) -> None:
    data = LAYERS[0]
    descriptor = Descriptor("application/octet-stream", Digest.of(data), len(data))
    path = tmp_path / "blob"
    path.write_bytes(data)
    with docker_registry(tmp_path) as registry:
        with CuttingProxy(registry.port, [None, None, 700_000], towards_server=True) as proxy:
            client = client_of(registry, tmp_path, proxy.host)
            assert client.upload_blob("team/up", descriptor, lambda: path.open("rb")) is True
            assert proxy.connections > 2
        assert read_all(client_of(registry, tmp_path), "team/up", descriptor) == data


def test_htpasswd_without_and_with_a_wrong_password(tmp_path: Path) -> None:
    with docker_registry(tmp_path, htpasswd={"user": PASSWORD}) as registry:
        with pytest.raises(AuthenticationFailed, match="requires a login"):
            RegistryClient(registry.host, make_access(tmp_path)).get_manifest("a", "b")
        wrong = {"DOCKER_USERNAME": "user", "DOCKER_PASSWORD": "wrong-secret"}
        with pytest.raises(AuthenticationFailed, match="refused the login from DOCKER_USERNAME") as caught:
            RegistryClient(registry.host, make_access(tmp_path, wrong)).get_manifest("a", "b")
        assert "wrong-secret" not in f"{caught.value} {caught.value.context} {caught.value.hint}"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ca")


def test_tls_of_a_private_authority_is_explained_and_never_downgraded(tmp_path: Path, authority: Authority) -> None:
    waits = Waits()
    with docker_registry(tmp_path, tls=authority) as registry:
        with pytest.raises(NetworkFailed, match="authority that this host does not trust") as caught:
            RegistryClient(registry.host, make_access(tmp_path, waits=waits)).get_manifest("a", "b")
        assert "KEDGE_CA_BUNDLE" in (caught.value.hint or "")
        assert f"/etc/docker/certs.d/{registry.host}/ca.crt" in (caught.value.hint or "")
        assert waits.seconds == []
        place = tmp_path / "certs.d" / registry.host
        place.mkdir(parents=True)
        (place / "ca.crt").write_bytes(authority.certificate.read_bytes())
        with pytest.raises(ImageNotFound):  # trusted now, and there is no such image
            RegistryClient(registry.host, make_access(tmp_path)).get_manifest("a", "b")


def test_tls_registry_asked_in_plain_http_says_so(tmp_path: Path, authority: Authority) -> None:
    with docker_registry(tmp_path, tls=authority) as registry, pytest.raises(Exception, match="speaks HTTPS"):
        RegistryClient(registry.host, make_access(tmp_path, plain_http=True)).get_manifest("a", "b")


def test_insecure_registry_is_not_verified(tmp_path: Path, authority: Authority) -> None:
    with docker_registry(tmp_path, tls=authority) as registry:
        conf = tmp_path / "registries.conf"
        conf.write_text(f'[[registry]]\nlocation="{registry.host}"\ninsecure=true\n')
        access = make_access(tmp_path, {"CONTAINERS_REGISTRIES_CONF": str(conf)})
        with pytest.raises(ImageNotFound):
            RegistryClient(registry.host, access).get_manifest("a", "b")
