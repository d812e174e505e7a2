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
from tests.builders.certificates import make_authority
from tests.builders.docker_registry import DockerRegistry, docker_registry
from tests.builders.registry_access import Waits, make_access
from tests.fakes.proxy import CuttingProxy
from tests.interop.test_layers_tools import make_layout

pytestmark = pytest.mark.service
PASSWORD = "htpasswd-p4ssword"
LAYERS = (random.Random(1).randbytes(3_200_000), b"second layer")  # skopeo compresses; random bytes stay as large
ENVIRON = {"KEDGE_DOCKER_USERNAME": "user", "KEDGE_DOCKER_PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    """It wants a login, and its certificate is of a private authority."""
    folder = tmp_path_factory.mktemp("registry")
    with docker_registry(folder, htpasswd={"user": PASSWORD}, tls=make_authority(folder / "ca")) as running:
        yield running


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    """Without either."""
    with docker_registry(tmp_path_factory.mktemp("plain")) as running:
        yield running


@pytest.fixture
def source(tmp_path: Path) -> str:
    """An image of two uncompressed layers, as skopeo names it."""
    return f"oci:{make_layout(tmp_path / 'layout', [*LAYERS], is_packed=False)}"


def client_of(registry: DockerRegistry, home: Path, host: str | None = None) -> RegistryClient:
    bundle = registry.authority.certificate if registry.authority else None
    access = make_access(home, ENVIRON if registry.users else None, ca_bundle=bundle)
    return RegistryClient(host or registry.host, access)


def read_all(client: RegistryClient, repository: str, descriptor: Descriptor, offset: int = 0) -> bytes:
    with client.open_blob(repository, descriptor, offset) as stream:
        assert stream.offset == offset
        return b"".join(stream)


def test_client_pulls_what_skopeo_pushed(registry: DockerRegistry, source: str, tmp_path: Path) -> None:
    registry.copy_in(source, "team/app:1.0")
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


@pytest.mark.usefixtures("source")
def test_skopeo_pulls_what_client_pushed(registry: DockerRegistry, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
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


def test_download_resumes_after_the_connection_is_cut(plain: DockerRegistry, source: str, tmp_path: Path) -> None:
    plain.copy_in(source, "team/app:1.0")
    manifest = client_of(plain, tmp_path).get_manifest("team/app", "1.0")
    assert isinstance(manifest, Manifest)
    layer = manifest.layers[0]
    with CuttingProxy(plain.port, [None, None, 500_000, 900_000]) as proxy:
        client = client_of(plain, tmp_path, proxy.host)  # the first two ask whether it listens, and for https
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


def test_upload_resumes_after_the_connection_is_cut(plain: DockerRegistry, tmp_path: Path) -> None:
    data = LAYERS[0]
    descriptor = Descriptor("application/octet-stream", Digest.of(data), len(data))
    path = tmp_path / "blob"
    path.write_bytes(data)
    with CuttingProxy(plain.port, [None, None, 700_000], towards_server=True) as proxy:
        client = client_of(plain, tmp_path, proxy.host)
        assert client.upload_blob("team/up", descriptor, lambda: path.open("rb")) is True
        assert proxy.connections > 2
    assert read_all(client_of(plain, tmp_path), "team/up", descriptor) == data


def test_htpasswd_without_and_with_a_wrong_password(registry: DockerRegistry, tmp_path: Path) -> None:
    bundle = registry.authority.certificate if registry.authority else None
    with pytest.raises(AuthenticationFailed, match="requires a login"):
        RegistryClient(registry.host, make_access(tmp_path, ca_bundle=bundle)).get_manifest("a", "b")
    wrong = {"DOCKER_USERNAME": "user", "DOCKER_PASSWORD": "wrong-secret"}
    with pytest.raises(AuthenticationFailed, match="refused the login from DOCKER_USERNAME") as caught:
        RegistryClient(registry.host, make_access(tmp_path, wrong, ca_bundle=bundle)).get_manifest("a", "b")
    assert "wrong-secret" not in f"{caught.value} {caught.value.context} {caught.value.hint}"


def test_tls_of_a_private_authority_is_explained_and_never_downgraded(registry: DockerRegistry, tmp_path: Path) -> None:
    waits = Waits()
    with pytest.raises(NetworkFailed, match="authority that this host does not trust") as caught:
        RegistryClient(registry.host, make_access(tmp_path, waits=waits)).get_manifest("a", "b")
    assert "KEDGE_CA_BUNDLE" in (caught.value.hint or "")
    assert f"/etc/docker/certs.d/{registry.host}/ca.crt" in (caught.value.hint or "")
    assert waits.seconds == []
    place = tmp_path / "certs.d" / registry.host
    place.mkdir(parents=True)
    assert registry.authority is not None
    (place / "ca.crt").write_bytes(registry.authority.certificate.read_bytes())
    with pytest.raises(ImageNotFound):  # trusted now, and there is no such image
        RegistryClient(registry.host, make_access(tmp_path, ENVIRON)).get_manifest("a", "b")


def test_tls_registry_asked_in_plain_http_says_so(registry: DockerRegistry, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="speaks HTTPS"):
        RegistryClient(registry.host, make_access(tmp_path, plain_http=True)).get_manifest("a", "b")


def test_insecure_registry_is_not_verified(registry: DockerRegistry, tmp_path: Path) -> None:
    conf = tmp_path / "registries.conf"
    conf.write_text(f'[[registry]]\nlocation="{registry.host}"\ninsecure=true\n')
    access = make_access(tmp_path, {**ENVIRON, "CONTAINERS_REGISTRIES_CONF": str(conf)})
    with pytest.raises(ImageNotFound):
        RegistryClient(registry.host, access).get_manifest("a", "b")
