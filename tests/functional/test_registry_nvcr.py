# SPDX-License-Identifier: BSD-3-Clause
"""nvcr.io under its own name: a fake with its peculiarities, with TLS, reached through a CONNECT proxy.

Needs openssl.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import Descriptor, Manifest
from kedge.errors import AccessDenied, AuthenticationFailed, ImageNotFound, NetworkFailed, RegistryProtocolError
from kedge.image.registry.client import RegistryClient
from tests.builders.certificates import Authority, make_authority
from tests.builders.registry_access import make_access
from tests.fakes.http_server import Reply
from tests.fakes.proxy import ConnectProxy
from tests.fakes.registry import FakeRegistry, nvcr

KEY = "nvapi-very-secret-key"
PROXY_LOGIN = "Basic dXNlcjpwcm94eS1zZWNyZXQ="  # user:proxy-secret
GATED = "nim/meta/llama"


@dataclass
class Site:
    """The fake nvcr.io, the proxy that leads to it, and the authority that vouches for it."""

    registry: FakeRegistry
    proxy: ConnectProxy
    authority: Authority
    home: Path

    def client(self, name: str = "nvcr.io", **environ: str) -> RegistryClient:
        proxy = {"HTTPS_PROXY": f"http://user:proxy-secret@{self.proxy.host}"}
        return RegistryClient(name, make_access(self.home, {**proxy, **environ}, ca_bundle=self.authority.certificate))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("nvcr.io", "registry-1.docker.io", "auth.docker.io", "127.0.0.1")


@pytest.fixture
def site(authority: Authority, certificate: tuple[Path, Path], tmp_path: Path) -> Iterator[Site]:
    policy = nvcr(
        users={"$oauthtoken": KEY, "other": "x"},
        private=frozenset({"myorg/private"}),
        gated={GATED: frozenset({"other"})},
    )
    with FakeRegistry(policy, tls=certificate, name="nvcr.io") as registry:
        for repository in ("nvidia/cuda", "myorg/private", GATED):
            registry.add_image(repository, "1.0", [b"layer of " + repository.encode()])
        port = registry.server.port
        routes = {name: port for name in ("nvcr.io:443", "registry-1.docker.io:443", "auth.docker.io:443")}
        with ConnectProxy(routes, PROXY_LOGIN) as proxy:
            yield Site(registry, proxy, authority, tmp_path)


def everything(problem: BaseException) -> str:
    return " ".join(str(part) for part in (problem, getattr(problem, "context", ""), getattr(problem, "hint", "")))


def test_nvcr_key_opens_private_images_and_goes_nowhere_else(site: Site) -> None:
    client = site.client(NGC_API_KEY=KEY)
    manifest = client.get_manifest("myorg/private", "1.0")
    assert isinstance(manifest, Manifest)
    with client.open_blob("myorg/private", manifest.layers[0]) as stream:
        assert b"".join(stream) == b"layer of myorg/private"
    schemes = [each.authorization.partition(" ")[0] for each in site.registry.server.log]
    assert schemes == ["Basic", "Bearer", "Bearer"], "not sent twice"
    (login,) = [each for each in site.registry.server.log if each.authorization.startswith("Basic")]
    assert (login.path, login.query["account"]) == ("/proxy_auth", ["$oauthtoken"])
    assert all(not each.authorization for each in site.registry.storage.log)


def test_nvcr_foreign_layer_comes_from_its_own_address_without_login(site: Site) -> None:
    data = b"kept elsewhere"
    site.registry.blobs[str(Digest.of(data))] = data  # on the storage server, but in no repository
    url = f"{site.registry.storage.url}/{Digest.of(data)}?X-Signature=presigned-secret"
    layer = Descriptor("x", Digest.of(data), len(data), urls=("ftp://nowhere/x", url))
    with site.client(NGC_API_KEY=KEY).open_blob("nvidia/cuda", layer, 5) as stream:
        assert (stream.offset, b"".join(stream)) == (5, data[5:])
    assert all(not each.authorization for each in site.registry.storage.log)


def test_nvcr_missing_key_says_how_to_make_one(site: Site) -> None:
    with pytest.raises(
        AuthenticationFailed, match=r"requires an API key for nvcr\.io/myorg/private:1\.0, and kedge found none"
    ) as caught:
        site.client().get_manifest("myorg/private", "1.0")
    assert "kedge registry login -u '$oauthtoken' nvcr.io" in (caught.value.hint or "")
    assert "https://org.ngc.nvidia.com/setup/api-keys" in (caught.value.hint or "")


def test_nvcr_refused_key_is_named_by_source_only(site: Site) -> None:
    with pytest.raises(AuthenticationFailed, match="refused the API key from NGC_API_KEY") as caught:
        site.client(NGC_API_KEY="nvapi-wrong-secret").get_manifest("nvidia/cuda", "1.0")
    assert "nvapi-wrong-secret" not in everything(caught.value)
    assert "***" in everything(caught.value)  # the service echoed it


def test_nvcr_licence_not_accepted_gives_the_page(site: Site) -> None:
    with pytest.raises(AccessDenied, match="has not accepted its licence") as caught:
        site.client(NGC_API_KEY=KEY).get_manifest(GATED, "1.0")
    assert "https://catalog.ngc.nvidia.com/orgs/nim/teams/meta/containers/llama" in (caught.value.hint or "")
    with pytest.raises(AuthenticationFailed, match="requires an API key"):
        site.client().get_manifest(GATED, "1.0")


def test_nvcr_deleted_tag_proposes_the_list(site: Site) -> None:
    with pytest.raises(ImageNotFound, match="deletes CUDA tags some months after") as caught:
        site.client().get_manifest("nvidia/cuda", "11.0-base")
    assert "kedge tags nvcr.io/nvidia/cuda" in (caught.value.hint or "")
    assert list(site.client().list_tags("nvidia/cuda")) == ["1.0"]


def test_docker_hub_name_leads_to_its_registry_and_token_service(site: Site) -> None:
    site.registry.policy.auth = "bearer"
    site.registry.policy.realm = "https://auth.docker.io/token"
    site.registry.policy.users = {"hubuser": "hub-secret"}
    site.registry.policy.private = frozenset({"library/app"})
    site.registry.add_image("library/app", "latest", [b"x"])
    client = site.client("docker.io", DOCKER_USERNAME="hubuser", DOCKER_PASSWORD="hub-secret")
    assert client.get_manifest("library/app", "latest")
    connected = {line.split(" ")[1] for line in site.proxy.log}
    assert connected == {"registry-1.docker.io:443", "auth.docker.io:443"}
    with pytest.raises(AuthenticationFailed, match="gives the same answer for repositories that do not exist"):
        site.client("docker.io").get_manifest("library/app", "latest")


def test_https_to_http_redirect_is_refused(site: Site) -> None:
    plain = Reply(307, headers={"Location": "http://127.0.0.1:9/blob?sig=secret-signature"})
    site.registry.server.fail("/manifests/", times=3, reply=plain)
    with pytest.raises(RegistryProtocolError, match="from https to plain http") as caught:
        site.client().get_manifest("nvidia/cuda", "1.0")
    assert "secret-signature" not in everything(caught.value)


def test_token_service_over_plain_http_is_refused(site: Site) -> None:
    site.registry.policy.realm = "http://tokens.example/token"
    with pytest.raises(AccessDenied, match="plain http"):
        site.client(NGC_API_KEY=KEY).get_manifest("nvidia/cuda", "1.0")


def test_certificate_of_another_name_is_explained(site: Site) -> None:
    site.proxy.routes = {**site.proxy.routes, "quay.io:443": site.registry.server.port}
    with pytest.raises(NetworkFailed, match="certificate is for another host name"):
        site.client("quay.io").get_manifest("a", "b")


def test_expired_certificate_points_at_the_clock(authority: Authority, site: Site, tmp_path: Path) -> None:
    expired = authority.issue("expired.example", days=0)  # OpenSSL 3.5 issues none of the past
    time.sleep(1.1)
    with FakeRegistry(tls=expired) as registry:
        site.proxy.routes = {"expired.example:443": registry.server.port}
        with pytest.raises(NetworkFailed, match="not valid at this host's time") as caught:
            site.client("expired.example").get_manifest("a", "b")
    assert "clock" in (caught.value.hint or "")


def test_proxy_that_refuses_or_wants_a_login_is_named_without_its_password(site: Site) -> None:
    with pytest.raises(NetworkFailed, match="proxy refuses the connection") as caught:
        site.client("ghcr.io").get_manifest("a", "b")
    assert "from HTTPS_PROXY" in caught.value.context["proxy"]
    assert "proxy-secret" not in everything(caught.value)
    with pytest.raises(NetworkFailed, match="proxy requires a login") as caught:
        site.client(HTTPS_PROXY=f"http://user:bad-proxy-secret@{site.proxy.host}").get_manifest("a", "b")
    assert "bad-proxy-secret" not in everything(caught.value)


def test_nvcr_token_is_asked_for_before_the_first_request(site: Site) -> None:
    site.client().get_manifest("nvidia/cuda", "1.0")
    assert [each.path for each in site.registry.server.log] == ["/proxy_auth", "/v2/nvidia/cuda/manifests/1.0"]
    assert site.registry.server.log[0].query["scope"] == ["repository:nvidia/cuda:pull"]


def test_nvcr_token_service_that_moved_is_found_by_the_challenge(site: Site) -> None:
    site.registry.server.fail("/proxy_auth", reply=Reply(404, b"gone"))
    assert site.client().get_manifest("nvidia/cuda", "1.0")
    paths = [each.path for each in site.registry.server.log]
    assert paths == ["/proxy_auth", "/v2/nvidia/cuda/manifests/1.0", "/proxy_auth", "/v2/nvidia/cuda/manifests/1.0"]
