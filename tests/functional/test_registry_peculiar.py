# SPDX-License-Identifier: BSD-3-Clause
"""Registries that are unlike others: hidden images, refused mounts, odd ranges and links, dead mirrors."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import Descriptor
from kedge.errors import AccessDenied, ImageNotFound, RegistryProtocolError
from kedge.image.registry.client import RegistryClient
from tests.builders.registry_access import Waits, make_access
from tests.fakes.http_server import Recorded, Reply
from tests.fakes.registry import FakeRegistry, Policy

PASSWORD = "p4ss-word-secret"
LAYER = bytes(range(256)) * 8192  # 2 MiB
USERS = {"user": PASSWORD}
LOGIN = {"DOCKER_USERNAME": "user", "DOCKER_PASSWORD": PASSWORD}
LARGE = Descriptor("application/octet-stream", Digest.of(LAYER), len(LAYER))


def client_of(registry: FakeRegistry, home: Path, environ: dict[str, str] | None = None) -> RegistryClient:
    return RegistryClient(registry.host, make_access(home, environ))


def hide_from_strangers(registry: FakeRegistry, status: int) -> None:
    """As Artifactory does: the API's root asks for a login, an image just is not there for a stranger."""
    inner = registry.server.answer

    def answer(request: Recorded) -> Reply:
        if "/manifests/" in request.path and not request.authorization:
            return Reply(status, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}')
        return inner(request)

    registry.server.answer = answer


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as served:
        yield served


@pytest.mark.parametrize("auth", ["basic", "bearer"])
@pytest.mark.parametrize("status", [403, 404])
def test_client_logs_in_where_images_are_hidden_from_strangers(tmp_path: Path, auth: str, status: int) -> None:
    with FakeRegistry(Policy(auth=auth, users=USERS)) as registry:
        expected = registry.add_image("team/app", "1.0", [b"layer"])
        hide_from_strangers(registry, status)
        assert client_of(registry, tmp_path, LOGIN).get_manifest("team/app", "1.0").digest == expected


def test_client_without_login_does_not_ask_twice_for_what_is_missing(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.add_image("team/app", "1.0", [b"layer"])
    with pytest.raises(ImageNotFound):
        client_of(registry, tmp_path).get_manifest("team/app", "2.0")
    assert len(registry.server.seen("GET /v2/.+")) == 1


def test_client_login_that_is_right_but_may_not_read_is_not_called_wrong(tmp_path: Path) -> None:
    """Docker Hub, Quay and Harbor answer 401 for what does not exist, however good the login is."""
    with FakeRegistry(Policy(auth="bearer", users=USERS)) as registry:
        refusal = 'Bearer realm="{}/token",service="fake",scope="repository:no/such:pull",error="insufficient_scope"'
        reply = Reply(401, b"{}", {"WWW-Authenticate": refusal.format(registry.server.url)})
        registry.server.fail("GET .*/no/such/manifests/", times=9, reply=reply)
        with pytest.raises(AccessDenied, match="does not exist") as caught:
            client_of(registry, tmp_path, LOGIN).get_manifest("no/such", "1.0")
        assert "log in again" not in (caught.value.hint or "")
        assert "DOCKER_USERNAME" in caught.value.message


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_upload_goes_on_where_a_mount_is_refused(tmp_path: Path, status: int) -> None:
    with FakeRegistry(Policy(auth="bearer", users=USERS)) as registry:
        registry.server.fail("POST .*mount=", times=9, reply=Reply(status, b"{}"))
        client = client_of(registry, tmp_path, LOGIN)
        assert client.upload_blob("team/new", LARGE, lambda: io.BytesIO(LAYER), "team/base") is True
        assert registry.blobs[str(LARGE.digest)] == LAYER


def test_upload_goes_on_where_no_token_is_given_for_the_mount(tmp_path: Path) -> None:
    with FakeRegistry(Policy(auth="bearer", users=USERS)) as registry:
        registry.server.fail("GET /token.*other", times=9, reply=Reply(403, b"{}"))
        client = client_of(registry, tmp_path, LOGIN)
        assert client.upload_blob("team/new", LARGE, lambda: io.BytesIO(LAYER), "other/base") is True


def test_upload_that_never_advances_is_given_up(tmp_path: Path, registry: FakeRegistry) -> None:
    reply = Reply(202, headers={"Location": "/v2/team/new/blobs/uploads/x?state=0", "Range": "0-0"})
    registry.server.fail("PATCH", times=50, reply=reply)
    with pytest.raises(RegistryProtocolError, match="stores none of them"):
        client_of(registry, tmp_path).upload_blob("team/new", LARGE, lambda: io.BytesIO(LAYER))
    assert len(registry.server.seen("PATCH")) < 10


def test_upload_needs_no_head(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.server.fail("HEAD", times=9, reply=Reply(405))
    client = client_of(registry, tmp_path)
    assert client.upload_blob("team/new", LARGE, lambda: io.BytesIO(LAYER)) is True


def test_has_blob_asks_for_the_right_to_push(tmp_path: Path) -> None:
    """GHCR gives no token at all to read a repository that does not exist yet, but one to push to it."""
    with FakeRegistry(Policy(auth="bearer", users=USERS)) as registry:
        client = client_of(registry, tmp_path, LOGIN)
        assert client.has_blob("team/new", LARGE.digest) is False
        assert "repository:team/new:pull,push" in registry.server.seen("/token")[0].query["scope"]


def test_mirror_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    waits = Waits()
    with FakeRegistry() as registry, FakeRegistry() as mirror:
        expected = registry.add_image("team/app", "1.0", [LAYER])
        mirror.server.fail(".*team", times=99, reply=Reply(503, b"{}"))
        path = tmp_path / "registries.conf"
        path.write_text(f'[[registry]]\nlocation="{registry.host}"\n[[registry.mirror]]\nlocation="{mirror.host}"\n')
        environ = {"CONTAINERS_REGISTRIES_CONF": str(path)}
        client = RegistryClient(registry.host, make_access(tmp_path, environ, waits=waits))
        assert client.get_manifest("team/app", "1.0").digest == expected
        asked = len(mirror.server.seen("team"))
        with client.open_blob("team/app", LARGE) as stream:
            assert b"".join(stream) == LAYER
        assert len(mirror.server.seen("team")) == asked
        with pytest.raises(ImageNotFound) as caught:
            client.get_manifest("team/app", "none")
        assert mirror.host in caught.value.context["mirror 1"]
