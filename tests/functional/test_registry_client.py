# SPDX-License-Identifier: BSD-3-Clause
"""The client against a registry in this process: tokens, redirects, retries, ranges, tags, uploads, mirrors."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kedge import errors
from kedge.base.digest import Digest
from kedge.base.manifest import OCI_MANIFEST, Descriptor, Manifest
from kedge.image.registry.client import RegistryClient
from kedge.image.registry.docker_config import store_login
from kedge.image.registry.secret import Secret
from tests.builders.registry_access import Waits, make_access
from tests.builders.rows import each_row
from tests.fakes.http_server import Recorded, Reply
from tests.fakes.registry import FakeRegistry, Policy, nvcr

PASSWORD = "p4ss-word-secret"
LAYER = bytes(range(256)) * 4096  # 1 MiB
USERS = {"user": PASSWORD}
LOGIN = {"DOCKER_USERNAME": "user", "DOCKER_PASSWORD": PASSWORD}


def open_registry(policy: Policy | None = None) -> FakeRegistry:
    registry = FakeRegistry(policy)
    registry.add_image("team/app", "1.0", [LAYER, b"small"])
    return registry


def client_of(
    registry: FakeRegistry, home: Path, environ: dict[str, str] | None = None, **settings: object
) -> RegistryClient:
    return RegistryClient(registry.host, make_access(home, environ, **settings))


def get_layers(client: RegistryClient) -> tuple[Descriptor, ...]:
    manifest = client.get_manifest("team/app", "1.0")
    assert isinstance(manifest, Manifest)
    return manifest.layers


def shown(problem: errors.KedgeError) -> str:
    return f"{problem} {problem.context} {problem.hint}"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with open_registry() as served:
        yield served


def test_client_reads_manifest_with_one_request(tmp_path: Path, registry: FakeRegistry) -> None:
    manifest = client_of(registry, tmp_path).get_manifest("team/app", "1.0")
    assert manifest.digest == Digest.of(registry.manifests["team/app", "1.0"][0])
    (request,) = registry.server.seen("/manifests/")
    assert request.headers["accept"].count("application/vnd") == 4
    assert request.headers["user-agent"].startswith("kedge")
    assert request.headers["accept-encoding"] == "identity"


def test_client_reads_everything_from_nvcr_anonymously(tmp_path: Path) -> None:
    with open_registry(nvcr()) as registry:
        client = client_of(registry, tmp_path)
        layers = get_layers(client)
        with client.open_blob("team/app", layers[0]) as stream:
            assert b"".join(stream) == LAYER
        assert client.read_blob("team/app", layers[1], 100) == b"small"
        assert list(client.list_tags("team/app")) == ["1.0"]
        (token,) = registry.server.seen("proxy_auth")  # one token for all of it
        assert token.authorization == ""
        assert "repository:team/app:pull,push" in token.query["scope"]  # the realm's own query survived
        assert "repository:team/app:pull" in token.query["scope"]
        assert len(registry.storage.log) == 2
        assert all(not each.authorization for each in registry.storage.log)


@pytest.mark.parametrize("field", ["token", "access_token"])
def test_client_takes_either_token_field(tmp_path: Path, field: str) -> None:
    with open_registry(Policy(auth="bearer", token_field=field)) as registry:
        assert get_layers(client_of(registry, tmp_path))


def test_client_basic_login(tmp_path: Path) -> None:
    with open_registry(Policy(auth="basic", users=USERS)) as registry:
        assert get_layers(client_of(registry, tmp_path, LOGIN))
        assert registry.server.log[0].authorization == ""  # never before being asked
        with pytest.raises(errors.AuthenticationFailed, match="requires a login") as caught:
            client_of(registry, tmp_path).get_manifest("team/app", "1.0")
        assert f"kedge registry login {registry.host}" in (caught.value.hint or "")


@pytest.mark.parametrize("auth", ["basic", "bearer", "nvcr"])
def test_client_refused_login_names_its_source_and_hides_it(tmp_path: Path, auth: str) -> None:
    with open_registry(Policy(auth=auth, users={"user": "another"})) as registry:
        with pytest.raises(errors.AuthenticationFailed, match="refused the login from DOCKER_USERNAME") as caught:
            client_of(registry, tmp_path, LOGIN).get_manifest("team/app", "1.0")
        assert PASSWORD not in shown(caught.value)
        assert "dXNlcjpw" not in shown(caught.value)  # nor the base64 that the token service echoed


def test_client_identity_token_is_posted(tmp_path: Path) -> None:
    path = tmp_path / ".docker/config.json"
    path.parent.mkdir()
    with open_registry(
        Policy(auth="bearer", identity_tokens={"refresh-me": "user"}, private=frozenset({"team/app"}))
    ) as registry:
        path.write_text(json.dumps({"auths": {registry.host: {"identitytoken": "refresh-me"}}}))
        assert get_layers(client_of(registry, tmp_path))
        (request,) = registry.server.seen("POST /token")
        assert b"grant_type=refresh_token" in request.body
        assert b"service=fake+registry" in request.body
        assert "refresh-me" not in request.path


def test_client_picks_bearer_among_several_challenges(tmp_path: Path) -> None:
    policy = Policy(auth="bearer", challenges=["Negotiate", 'Basic realm="a, b=c"'])
    with open_registry(policy) as registry:
        assert get_layers(client_of(registry, tmp_path))


def test_client_keeps_token_until_it_expires(tmp_path: Path) -> None:
    with open_registry(Policy(auth="bearer", expires_in=300)) as registry:
        client = client_of(registry, tmp_path)
        for _ in range(3):
            get_layers(client)
        assert len(registry.server.seen("/token")) == 1
        registry.tokens.clear()  # the registry forgets: 401, a new token, no error
        get_layers(client)
        assert len(registry.server.seen("/token")) == 2


def test_client_renews_token_that_is_about_to_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_registry(Policy(auth="bearer", expires_in=30)) as registry:
        client = client_of(registry, tmp_path)
        get_layers(client)
        import time

        true = time.monotonic
        monkeypatch.setattr("time.monotonic", lambda: true() + 25)
        get_layers(client)
        assert len(registry.server.seen("/token")) == 2
        assert len(registry.server.seen("/manifests/")) == 3  # no second 401


def test_client_password_does_not_go_to_foreign_realm(tmp_path: Path) -> None:
    with FakeRegistry(Policy(auth="bearer", users=USERS)) as foreign:
        realm = f"http://localhost:{foreign.server.port}/token"  # another host name
        with open_registry(Policy(auth="bearer", users=USERS, realm=realm)) as registry:
            registry.tokens = foreign.tokens
            assert get_layers(client_of(registry, tmp_path, LOGIN))  # public: anonymous is enough
            assert all(not each.authorization for each in foreign.server.log)
            registry.policy.private = frozenset({"team/app"})
            with pytest.raises(errors.AuthenticationFailed, match="another host, localhost") as caught:
                client_of(registry, tmp_path, LOGIN).get_manifest("team/app", "1.0")
            assert "KEDGE_TRUSTED_REALMS" in (caught.value.hint or "")
            assert all(not each.authorization for each in foreign.server.log)
            trusting = client_of(registry, tmp_path, LOGIN, trusted=frozenset({"localhost"}))
            assert get_layers(trusting)


def test_client_authorization_is_not_forwarded_to_a_redirected_manifest(tmp_path: Path) -> None:
    with open_registry() as other, open_registry(Policy(auth="basic", users=USERS)) as registry:
        target = f"{other.server.url}/v2/team/app/manifests/1.0"
        registry.server.fail("/manifests/", times=9, reply=Reply(307, headers={"Location": target}))
        assert get_layers(client_of(registry, tmp_path, LOGIN))
        assert all(not each.authorization for each in other.server.log)


def test_client_redirect_loop_ends(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.server.fail("GET /v2/t", times=99, reply=Reply(302, headers={"Location": "/v2/team/again"}))
    with pytest.raises(errors.RegistryProtocolError, match="redirects: "):
        client_of(registry, tmp_path).get_manifest("team/app", "1.0")
    assert len(registry.server.log) < 12


@pytest.mark.parametrize("location", ["ftp://x/y", "file:///etc/passwd", "http://h:0/x"])
def test_client_strange_redirect_is_refused(tmp_path: Path, location: str, registry: FakeRegistry) -> None:
    registry.server.fail("/manifests/", reply=Reply(302, headers={"Location": location}))
    with pytest.raises(errors.KedgeError):
        client_of(registry, tmp_path).get_manifest("team/app", "1.0")


@each_row("status", [408, 429, 500, 502, 503, 504])
def test_client_retries_what_may_pass(tmp_path: Path, status: int, registry: FakeRegistry) -> None:
    waits = Waits()
    registry.server.fail("/manifests/", times=2, reply=Reply(status, b"later", {"Retry-After": "2"}))
    assert get_layers(client_of(registry, tmp_path, waits=waits))
    assert len(waits.seconds) == 2
    assert all(2 <= wait < 4 for wait in waits.seconds)
    assert "trying again" in waits.notes[0]


def test_client_backs_off_exponentially_with_jitter(tmp_path: Path, registry: FakeRegistry) -> None:
    waits = Waits()
    registry.server.fail("/manifests/", times=99, reply=Reply(503, b"down"))
    with pytest.raises(errors.NetworkFailed, match="status 503"):
        client_of(registry, tmp_path, waits=waits, retries=5).get_manifest("team/app", "1.0")
    for number, wait in enumerate(waits.seconds):
        assert 0.25 * 2**number <= wait <= 0.5 * 2**number
    assert len(waits.seconds) == 5


def test_client_gives_up_on_a_long_rate_limit_and_shows_it(tmp_path: Path, registry: FakeRegistry) -> None:
    waits = Waits()
    headers = {"Retry-After": "3600", "RateLimit-Limit": "100;w=21600", "RateLimit-Remaining": "0;w=21600"}
    body = json.dumps({"errors": [{"code": "TOOMANYREQUESTS", "message": "You have reached your pull rate limit."}]})
    registry.server.fail("/manifests/", times=99, reply=Reply(429, body.encode(), headers))
    with pytest.raises(errors.RateLimited, match="0;w=21600 pulls left") as caught:
        client_of(registry, tmp_path, waits=waits).get_manifest("team/app", "1.0")
    assert "3600" in caught.value.message
    assert "You have reached" in caught.value.context["registry says"]
    assert waits.seconds == []
    assert len(registry.server.seen("/manifests/")) == 1


def test_client_retries_broken_connections(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.server.fail("/manifests/", cut_request_at=0)
    registry.server.fail("/manifests/", cut_request_at=0, reset=True)
    assert get_layers(client_of(registry, tmp_path))


def test_client_says_when_nothing_listens(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        host = registry.host
    waits = Waits()
    with pytest.raises(errors.NetworkFailed, match="connection refused"):
        RegistryClient(host, make_access(tmp_path, waits=waits)).get_manifest("a", "b")
    assert len(waits.seconds) == 1


def test_client_says_when_a_name_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(errors.NetworkFailed, match="name") as caught:
        RegistryClient("registry.invalid", make_access(tmp_path, retries=0)).get_manifest("a", "b")
    assert "login node" in (caught.value.hint or "")


def test_client_blob_from_an_offset(tmp_path: Path) -> None:
    for redirect in (False, True):
        with open_registry(Policy(redirect_blobs=redirect)) as registry:
            client = client_of(registry, tmp_path)
            layer = get_layers(client)[0]
            with client.open_blob("team/app", layer, 1000) as stream:
                assert (stream.offset, b"".join(stream)) == (1000, LAYER[1000:])
            server = registry.storage if redirect else registry.server
            assert server.log[-1].headers["range"] == "bytes=1000-"
            with client.open_blob("team/app", layer, layer.size) as stream:
                assert (stream.offset, b"".join(stream)) == (layer.size, b"")
            with client.open_blob("team/app", layer, layer.size + 5) as stream:
                assert (stream.offset, b"".join(stream)) == (0, LAYER)


def test_client_blob_when_the_range_is_ignored_or_wrong(tmp_path: Path) -> None:
    with open_registry(Policy(ignore_range=True)) as registry:
        client = client_of(registry, tmp_path)
        layer = get_layers(client)[0]
        with client.open_blob("team/app", layer, 1000) as stream:
            assert (stream.offset, b"".join(stream)) == (0, LAYER)
        for reply in (
            Reply(206, b"x" * 10, {"Content-Range": "bytes 5-14/20"}),
            Reply(206, b"x" * 10, {}),
            Reply(206, b"x" * 10, {"Content-Range": "nonsense"}),
            Reply(416, b"", {"Content-Range": "bytes */7"}),
        ):
            registry.server.fail("/blobs/", reply=reply)
            with client.open_blob("team/app", layer, 1000) as stream:
                assert (stream.offset, b"".join(stream)) == (0, LAYER)


@pytest.mark.parametrize(
    "fault", [{"cut_at": 300_000}, {"cut_at": 300_000, "reset": True}, {"cut_at": 300_000, "unframed": True}]
)
def test_client_blob_that_breaks_is_resumed_where_it_broke(tmp_path: Path, fault: dict[str, object]) -> None:
    with open_registry(nvcr()) as registry:
        client = client_of(registry, tmp_path)
        layer = get_layers(client)[0]
        registry.storage.fail("GET", **fault)
        received = bytearray()
        with (
            client.open_blob("team/app", layer) as stream,
            pytest.raises(errors.NetworkFailed, match="broke after") as caught,
        ):
            received.extend(itertools.chain.from_iterable(stream))
        assert caught.value.is_transient
        assert "presigned-secret" not in shown(caught.value)
        with client.open_blob("team/app", layer, len(received)) as stream:
            assert stream.offset == len(received)
            received += b"".join(stream)
        assert bytes(received) == LAYER


def test_client_reuses_connections(tmp_path: Path) -> None:
    with open_registry(Policy(auth="bearer")) as registry:
        client = client_of(registry, tmp_path)
        client.get_manifest("team/app", "1.0")
        before = registry.server.connections
        for _ in range(10):
            get_layers(client)
            client.head_manifest("team/app", "1.0")
            client.has_blob("team/app", Digest.of(b"absent"))
        assert registry.server.connections == before


def test_client_is_shared_by_threads_with_one_token(tmp_path: Path) -> None:
    with open_registry(nvcr()) as registry:
        client = client_of(registry, tmp_path)
        layer = Descriptor("x", Digest.of(LAYER), len(LAYER))

        def read(offset: int) -> bool:
            with client.open_blob("team/app", layer, offset) as stream:
                return b"".join(stream) == LAYER[offset:]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(0, 320, 10)))
        assert len(registry.server.seen("proxy_auth")) == 1


def test_client_head_manifest(tmp_path: Path, registry: FakeRegistry) -> None:
    client = client_of(registry, tmp_path)
    expected = Digest.of(registry.manifests["team/app", "1.0"][0])
    assert client.head_manifest("team/app", "1.0") == expected
    assert not registry.server.seen("GET .*/manifests/")
    assert client.head_manifest("team/app", "2.0") is None
    registry.server.fail("HEAD", reply=Reply(405))
    assert client.head_manifest("team/app", "1.0") == expected


@pytest.mark.parametrize("absolute", [False, True])
def test_client_pages_through_tags(tmp_path: Path, absolute: bool) -> None:
    with open_registry(Policy(page=7, absolute_links=absolute)) as registry:
        for number in range(30):
            registry.add_image("many/tags", f"v{number:02}", [b"x"])
        tags = client_of(registry, tmp_path).list_tags("many/tags")
        assert isinstance(tags, Iterator)
        assert list(tags) == [f"v{number:02}" for number in range(30)]
        assert registry.server.seen("tags/list")[0].query["n"] == ["1000"]
        assert len(registry.server.seen("tags/list")) == 5


@pytest.mark.parametrize("link", ["<http://localhost:1/v2/x/tags/list?last=a>", "</v2/team/app/tags/list?n=1000>"])
def test_client_tags_stay_on_the_registry_and_end(tmp_path: Path, link: str) -> None:
    with open_registry(Policy(auth="basic", users=USERS)) as registry:
        page = Reply(200, b'{"tags":["a"]}', {"Link": link + '; rel="next"'})
        client = client_of(registry, tmp_path, LOGIN)
        get_layers(client)
        registry.server.fail("tags/list", times=99, reply=page)
        with pytest.raises(errors.RegistryProtocolError, match="circle or leaves"):
            list(client.list_tags("team/app"))


def test_client_tags_null_is_none(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.server.fail("tags/list", times=9, reply=Reply(200, b'{"name":"team/app","tags":null}'))
    assert list(client_of(registry, tmp_path).list_tags("team/app")) == []


def test_client_missing_tag_and_repository(tmp_path: Path, registry: FakeRegistry) -> None:
    client = client_of(registry, tmp_path)
    with pytest.raises(errors.ImageNotFound, match=r"has no .*team/app:9\.9") as caught:
        client.get_manifest("team/app", "9.9")
    assert "MANIFEST_UNKNOWN" in caught.value.context["registry says"]
    assert len(registry.server.seen("GET /v2/.+")) == 1  # without a login nothing is asked twice
    with pytest.raises(errors.ImageNotFound, match="no repository 'no/such'"):
        client.get_manifest("no/such", "1.0")


def test_client_schema_one_is_named(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.add_manifest("team/old", "1", b'{"schemaVersion":1,"fsLayers":[]}', "application/json")
    with pytest.raises(errors.UnsupportedFormat, match="schema 1"):
        client_of(registry, tmp_path).get_manifest("team/old", "1")


def test_client_foreign_layer_without_address_is_missing(tmp_path: Path, registry: FakeRegistry) -> None:
    absent = Descriptor("x", Digest.of(b"absent"), 6)
    with pytest.raises(errors.ImageNotFound):
        client_of(registry, tmp_path).open_blob("team/app", absent)


# Uploads


def push(client: RegistryClient, data: bytes, **settings: object) -> tuple[bool, list[int]]:
    advanced: list[int] = []
    descriptor = Descriptor("application/octet-stream", Digest.of(data), len(data))
    sent = client.upload_blob("team/new", descriptor, lambda: io.BytesIO(data), advance=advanced.append, **settings)
    return sent, advanced


@pytest.mark.parametrize("data", [b"", b"tiny", LAYER * 3], ids=["empty", "tiny", "large"])
def test_upload_once_and_never_again(tmp_path: Path, data: bytes) -> None:
    with open_registry(Policy(auth="bearer", users=USERS)) as registry:
        client = client_of(registry, tmp_path, LOGIN)
        assert push(client, data)[0] is True
        assert registry.blobs[str(Digest.of(data))] == data
        sent, advanced = push(client, data)
        assert (sent, sum(advanced)) == (False, len(data))
        assert client.has_blob("team/new", Digest.of(data))


def test_upload_mounts_from_another_repository(tmp_path: Path) -> None:
    with open_registry(Policy(auth="bearer", users=USERS)) as registry:
        client = client_of(registry, tmp_path, LOGIN)
        assert push(client, LAYER, mount_from="team/app")[0] is False
        assert not registry.server.seen("PATCH|PUT")
        scopes = [scope for each in registry.server.seen("/token") for scope in each.query["scope"]]
        assert "repository:team/app:pull" in scopes


def test_upload_sends_when_the_mount_is_declined(tmp_path: Path) -> None:
    with open_registry(Policy(can_mount=False)) as registry:
        assert push(client_of(registry, tmp_path), LAYER, mount_from="team/app")[0] is True
        assert str(Digest.of(LAYER)) in registry.repository_blobs["team/new"]


def test_upload_resumes_after_a_break(tmp_path: Path) -> None:
    data = LAYER * 4
    with open_registry(Policy(patch_limit=2 << 20)) as registry:
        registry.server.fail("PATCH .*state=[1-9]", cut_request_at=700_000, reset=True)  # in the second piece
        sent, advanced = push(client_of(registry, tmp_path), data)
        assert (sent, sum(advanced)) == (True, len(data))
        assert registry.blobs[str(Digest.of(data))] == data
        assert registry.server.seen("GET .*/uploads/")  # it asked how far it got


def test_upload_is_cut_into_pieces_where_a_proxy_limits_bodies(tmp_path: Path) -> None:
    data = LAYER * 5
    with open_registry(Policy(patch_limit=1 << 20)) as registry:
        assert push(client_of(registry, tmp_path), data)[0] is True
        assert max(len(each.body) for each in registry.server.seen("PATCH")[2:]) <= 1 << 20


def test_upload_shrinks_pieces_that_are_cut_without_a_word(tmp_path: Path, registry: FakeRegistry) -> None:
    data = LAYER * 5
    registry.server.fail("PATCH", times=2, cut_request_at=100_000, reset=True)
    assert push(client_of(registry, tmp_path), data)[0] is True
    assert registry.blobs[str(Digest.of(data))] == data
    assert max(len(each.body) for each in registry.server.seen("PATCH")) < len(data)


@pytest.mark.parametrize("data", [b"tiny", LAYER * 2], ids=["monolithic", "pieces"])
def test_upload_whose_last_answer_is_lost_is_found_to_be_there(tmp_path, data, registry):
    registry.server.fail("PUT .*digest=", reply=None, cut_at=0, length=5, reset=True)
    assert push(client_of(registry, tmp_path), data)[0] is True
    assert registry.blobs[str(Digest.of(data))] == data


def test_upload_without_rights_is_explained(tmp_path: Path) -> None:
    with open_registry(Policy(auth="bearer")) as registry, pytest.raises(errors.AuthenticationFailed, match="write"):
        push(client_of(registry, tmp_path), LAYER)


def test_put_manifest_returns_its_digest(tmp_path: Path, registry: FakeRegistry) -> None:
    raw = registry.manifests["team/app", "1.0"][0]
    assert client_of(registry, tmp_path).put_manifest("team/app", "2.0", raw, OCI_MANIFEST) == Digest.of(raw)
    assert registry.manifests["team/app", "2.0"] == (raw, OCI_MANIFEST)


# Mirrors


def mirrored(home: Path, registry: str, *mirrors: str) -> dict[str, str]:
    path = home / "registries.conf"
    text = "".join(f'[[registry.mirror]]\nlocation="{mirror}"\n' for mirror in mirrors)
    path.write_text(f'[[registry]]\nlocation="{registry}"\n{text}')
    return {"CONTAINERS_REGISTRIES_CONF": str(path)}


def test_mirrors_that_fail_are_passed_over_and_those_that_do_not_answer_are_asked_once(tmp_path: Path) -> None:
    with open_registry() as registry, FakeRegistry() as empty, FakeRegistry() as busy:
        with FakeRegistry() as closed:
            gone = closed.host
        busy.server.fail(".*team", times=99, reply=Reply(503, b"{}"))
        environ = mirrored(tmp_path, registry.host, gone, busy.host, empty.host)
        client = client_of(registry, tmp_path, environ, waits=Waits())
        layer = get_layers(client)[0]
        asked = len(busy.server.seen("team"))
        with client.open_blob("team/app", layer) as stream:
            assert b"".join(stream) == LAYER
        assert len(busy.server.seen("team")) == asked
        with pytest.raises(errors.ImageNotFound) as caught:
            client.get_manifest("team/app", "none")
        assert gone in caught.value.context["mirror 1"]
        assert busy.host in caught.value.context["mirror 2"]


def test_mirror_has_its_own_login(tmp_path: Path) -> None:
    with open_registry(Policy(auth="basic", users={"m": "mirror-pass"})) as mirror, open_registry() as registry:
        store_login(tmp_path / ".apptainer/docker-config.json", mirror.host, "m", Secret("mirror-pass"))
        assert get_layers(client_of(registry, tmp_path, mirrored(tmp_path, registry.host, mirror.host)))
        assert not registry.server.log


# Registries that are unlike others


def hide_from_strangers(registry: FakeRegistry, status: int) -> None:
    """As Artifactory does: the API's root asks for a login, an image just is not there for a stranger."""
    inner = registry.server.answer

    def answer(request: Recorded) -> Reply:
        if "/manifests/" in request.path and not request.authorization:
            return Reply(status, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}')
        return inner(request)

    registry.server.answer = answer


@each_row(("auth", "status"), [(auth, status) for auth in ("basic", "bearer") for status in (403, 404)])
def test_client_logs_in_where_images_are_hidden_from_strangers(tmp_path: Path, auth: str, status: int) -> None:
    with open_registry(Policy(auth=auth, users=USERS)) as registry:
        hide_from_strangers(registry, status)
        assert get_layers(client_of(registry, tmp_path, LOGIN))


def test_client_login_that_is_right_but_may_not_read_is_not_called_wrong(tmp_path: Path) -> None:
    """Docker Hub, Quay and Harbor answer 401 for what does not exist, however good the login is."""
    with open_registry(Policy(auth="bearer", users=USERS)) as registry:
        refusal = 'Bearer realm="{}/token",service="fake",scope="repository:no/such:pull",error="insufficient_scope"'
        reply = Reply(401, b"{}", {"WWW-Authenticate": refusal.format(registry.server.url)})
        registry.server.fail("GET .*/no/such/manifests/", times=9, reply=reply)
        with pytest.raises(errors.AccessDenied, match="does not exist") as caught:
            client_of(registry, tmp_path, LOGIN).get_manifest("no/such", "1.0")
        assert "log in again" not in (caught.value.hint or "")
        assert "DOCKER_USERNAME" in caught.value.message


@each_row(
    ("asked", "status"), [("GET /token.*other", 403), *(("POST .*mount=", each) for each in (400, 401, 403, 404))]
)
def test_upload_goes_on_where_a_mount_or_its_token_is_refused(tmp_path: Path, asked: str, status: int) -> None:
    with open_registry(Policy(auth="bearer", users=USERS)) as registry:
        registry.server.fail(asked, times=9, reply=Reply(status, b"{}"))
        assert push(client_of(registry, tmp_path, LOGIN), LAYER * 2, mount_from="other/base")[0] is True
        assert registry.blobs[str(Digest.of(LAYER * 2))] == LAYER * 2


def test_upload_that_never_advances_is_given_up(tmp_path: Path, registry: FakeRegistry) -> None:
    reply = Reply(202, headers={"Location": "/v2/team/new/blobs/uploads/x?state=0", "Range": "0-0"})
    registry.server.fail("PATCH", times=50, reply=reply)
    with pytest.raises(errors.RegistryProtocolError, match="stores none of them"):
        push(client_of(registry, tmp_path), LAYER * 2)
    assert len(registry.server.seen("PATCH")) < 10


def test_upload_needs_no_head(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.server.fail("HEAD", times=9, reply=Reply(405))
    assert push(client_of(registry, tmp_path), LAYER * 2)[0] is True


def test_has_blob_asks_for_the_right_to_push(tmp_path: Path) -> None:
    """GHCR gives no token at all to read a repository that does not exist yet, but one to push to it."""
    with open_registry(Policy(auth="bearer", users=USERS)) as registry:
        assert client_of(registry, tmp_path, LOGIN).has_blob("team/new", Digest.of(b"absent")) is False
        assert "repository:team/new:pull,push" in registry.server.seen("/token")[0].query["scope"]
