# SPDX-License-Identifier: BSD-3-Clause
"""Registries that lie, cheat and stumble: each answer gives a named error, in little memory, with no secret in it."""

from __future__ import annotations

import io
import json
import traceback
import tracemalloc
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import MAXIMUM_MANIFEST, Descriptor, Manifest
from kedge.errors import (
    AuthenticationFailed,
    CorruptImage,
    DigestMismatch,
    KedgeError,
    NetworkFailed,
    RegistryProtocolError,
)
from kedge.image.registry.client import RegistryClient
from tests.builders.registry_access import Waits, make_access
from tests.builders.rows import each_row
from tests.fakes.http_server import Reply
from tests.fakes.registry import FakeRegistry, Policy

PASSWORD = "hunter2-very-secret"
LOGIN = {"DOCKER_USERNAME": "user", "DOCKER_PASSWORD": PASSWORD}
LAYER = bytes(1 << 20)


def open_registry(policy: Policy | None = None) -> FakeRegistry:
    registry = FakeRegistry(policy)
    registry.add_image("team/app", "1.0", [LAYER])
    return registry


def client_of(
    registry: FakeRegistry, home: Path, environ: dict[str, str] | None = None, retries: int = 1
) -> RegistryClient:
    return RegistryClient(registry.host, make_access(home, environ, retries=retries))


def first_layer(client: RegistryClient) -> Descriptor:
    manifest = client.get_manifest("team/app", "1.0")
    assert isinstance(manifest, Manifest)
    return manifest.layers[0]


MANIFESTS: dict[type[KedgeError], dict[str, Reply]] = {
    RegistryProtocolError: {
        "html": Reply(200, b"<!DOCTYPE html><title>Sign in</title>", {"Content-Type": "text/html"}),
        "html as json": Reply(200, b"\n <html></html>", {"Content-Type": "application/json"}),
        "html 407": Reply(403, b"<html>blocked by policy</html>", {"Content-Type": "text/html"}),
        "huge": Reply(200, b" " * (MAXIMUM_MANIFEST + 1)),
        "huge by header": Reply(200, b"{}", {"Content-Length": str(1 << 40)}),
        "204": Reply(204),
        "302 without location": Reply(302),
        "418": Reply(418, b"teapot"),
        "401 with odd realm": Reply(401, b"", {"WWW-Authenticate": 'Bearer realm="file:///etc/passwd"'}),
        "401 with broken realm": Reply(401, b"", {"WWW-Authenticate": 'Bearer realm="http://[::"'}),
    },
    NetworkFailed: {"html 503": Reply(503, b"<html>proxy error</html>", {"Content-Type": "text/html"})},
    CorruptImage: {
        "empty": Reply(200, b""),
        "not json": Reply(200, b"\x00\x01\x02"),
        "list": Reply(200, b"[]"),
        "deep": Reply(200, b"[" * 200_000),
        "no layers": Reply(200, b'{"schemaVersion":2}'),
    },
    AuthenticationFailed: {
        "401 without challenge": Reply(401, b"no"),
        "401 with junk": Reply(401, b"no", {"WWW-Authenticate": '=,"",Bearer ,,realm'}),
    },
    KedgeError: {"error body of 1 MB": Reply(404, b'{"errors":[' + b'{"code":"X"},' * 80_000 + b"{}]}")},
    DigestMismatch: {
        "wrong digest header": Reply(200, b'{"schemaVersion":2}', {"Docker-Content-Digest": str(Digest.of(b"other"))})
    },
}


@each_row("kind,name,reply", [(kind, *row) for kind, rows in MANIFESTS.items() for row in rows.items()])
def test_hostile_manifest_answer_is_a_named_error(
    tmp_path: Path, kind: type[KedgeError], name: str, reply: Reply
) -> None:
    del name
    with open_registry() as registry:
        client = client_of(registry, tmp_path)
        client.head_manifest("team/app", "1.0")
        registry.server.fail("GET .*/manifests/", times=99, reply=reply)
        with pytest.raises(kind):
            client.get_manifest("team/app", "1.0")


def test_hostile_manifest_of_another_digest_is_refused(tmp_path: Path) -> None:
    with open_registry() as registry:
        wanted = Digest.of(b"something else")
        registry.manifests["team/app", str(wanted)] = registry.manifests["team/app", "1.0"]
        with pytest.raises(DigestMismatch, match="not the requested one"):
            client_of(registry, tmp_path).get_manifest("team/app", str(wanted))


BLOBS: dict[type[KedgeError], dict[str, dict[str, object]]] = {
    NetworkFailed: {
        "short": {"cut_at": 1000},
        "short and unframed": {"cut_at": 1000, "unframed": True},
        "reset": {"cut_at": 1000, "reset": True},
    },
    DigestMismatch: {
        "length too small": {"length": 1000},
        "length too large": {"length": len(LAYER) + 5},
        "more than promised": {"reply": Reply(200, LAYER + b"x"), "unframed": True},
        "nothing": {"reply": Reply(200, b"")},
        "corrupt": {"corrupt_at": 5},
    },
    RegistryProtocolError: {
        "206 unasked": {"reply": Reply(206, LAYER, {"Content-Range": f"bytes 0-{len(LAYER) - 1}/{len(LAYER)}"})},
        "redirected to a strange scheme": {"reply": Reply(307, headers={"Location": "gopher://x/"})},
    },
    KedgeError: {"gone": {"reply": Reply(404)}},
}


@each_row("kind,name,fault", [(kind, *row) for kind, rows in BLOBS.items() for row in rows.items()])
def test_hostile_blob_is_a_named_error(
    tmp_path: Path, kind: type[KedgeError], name: str, fault: dict[str, object]
) -> None:
    del name
    with open_registry() as registry:
        client = client_of(registry, tmp_path)
        layer = first_layer(client)
        registry.server.fail("/blobs/", times=9, **fault)
        with pytest.raises(kind):
            client.read_blob("team/app", layer, 2 << 20)


def test_hostile_blob_larger_than_allowed_is_not_asked_for(tmp_path: Path) -> None:
    with open_registry() as registry:
        client = client_of(registry, tmp_path)
        with pytest.raises(CorruptImage, match="is too large"):
            client.read_blob("team/app", Descriptor("x", Digest.of(b""), 1 << 40), 1000)
        assert not registry.server.log


def test_hostile_server_that_stalls_is_left(tmp_path: Path) -> None:
    from kedge.image.registry.client_setup import Access
    from kedge.image.registry.transport import HttpTransport, TransportOptions

    with open_registry() as registry:
        registry.server.fail("/manifests/", times=9, delay=2.0)
        options = TransportOptions(read_timeout=0.2, retries=1, sleep=lambda _: None, certificate_folders=())
        with pytest.raises(NetworkFailed, match="timeout"):
            RegistryClient(registry.host, Access(HttpTransport(options))).get_manifest("team/app", "1.0")


@each_row(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"token": 5}',
        b'{"token": "a b"}',
        b'{"token": "a\\r\\nX: y"}',
        b'{"token":"\xc3\xa9"}',
        b"x" * (2 << 20),
    ],
)
def test_hostile_token_answer_is_a_named_error(tmp_path: Path, answer: bytes) -> None:
    with open_registry(Policy(auth="bearer")) as registry:
        registry.server.fail("/token", times=9, reply=Reply(200, answer))
        with pytest.raises(RegistryProtocolError):
            client_of(registry, tmp_path).get_manifest("team/app", "1.0")


def test_hostile_token_that_is_never_accepted_ends(tmp_path: Path) -> None:
    with open_registry(Policy(auth="bearer")) as registry:
        registry.server.fail("/token", times=99, reply=Reply(200, b'{"token":"useless"}'))
        with pytest.raises(AuthenticationFailed):
            client_of(registry, tmp_path).get_manifest("team/app", "1.0")
        assert len(registry.server.log) < 10


@each_row("body", [b"", b"[]", b"5", b'{"tags": 5}', b'{"tags": {"a": 1}}', b"<html>", b"[" * 100_000])
def test_hostile_tag_list_is_a_named_error(tmp_path: Path, body: bytes) -> None:
    with open_registry() as registry:
        registry.server.fail("tags/list", times=9, reply=Reply(200, body))
        with pytest.raises(RegistryProtocolError):
            list(client_of(registry, tmp_path).list_tags("team/app"))


@each_row(
    "location",
    ["", "http://", "ftp://elsewhere/x", "//", "http://127.0.0.1:1/upload"],
    ids=["none", "bare", "ftp", "slashes", "dead"],
)
def test_hostile_upload_location_is_a_named_error(tmp_path: Path, location: str) -> None:
    with open_registry(Policy(auth="basic", users={"user": PASSWORD})) as registry:
        client = client_of(registry, tmp_path, LOGIN, retries=0)
        first_layer(client)
        registry.server.fail("POST", times=9, reply=Reply(202, headers={"Location": location} if location else {}))
        with pytest.raises(KedgeError):
            client.upload_blob("team/app", Descriptor("x", Digest.of(b"new"), 3), lambda: io.BytesIO(b"new"))


def test_hostile_upload_elsewhere_gets_no_login(tmp_path: Path) -> None:
    with open_registry() as other, open_registry(Policy(auth="basic", users={"user": PASSWORD})) as registry:
        client = client_of(registry, tmp_path, LOGIN)
        first_layer(client)
        target = f"{other.server.url}/v2/team/app/blobs/uploads/x"
        registry.server.fail("POST", reply=Reply(202, headers={"Location": target}))
        with pytest.raises(KedgeError):
            client.upload_blob("team/app", Descriptor("x", Digest.of(b"new"), 3), lambda: io.BytesIO(b"new"))
        assert other.server.log
        assert all(not each.authorization for each in other.server.log)


def test_hostile_stream_needs_little_memory(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        registry.add_image("team/app", "1.0", [bytes(64 << 20)])
        client = client_of(registry, tmp_path)
        layer = first_layer(client)
        with client.open_blob("team/app", layer) as stream:
            tracemalloc.start()
            received = sum(len(piece) for piece in stream)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert received == layer.size
        assert peak < 4 << 20


@each_row("status", [400, 401, 403, 404, 429, 500])
@each_row("auth", ["basic", "bearer"])
def test_hostile_echo_never_shows_a_secret(tmp_path: Path, status: int, auth: str) -> None:
    """The registry repeats every header in its error; no message, context, hint, note or traceback may."""
    waits = Waits()
    policy = Policy(auth=auth, users={"user": PASSWORD})
    with open_registry(policy) as registry:
        client = RegistryClient(registry.host, make_access(tmp_path, LOGIN, waits=waits, retries=1))
        client.get_manifest("team/app", "1.0")
        sent = {each.authorization for each in registry.server.log} - {""}
        body = json.dumps({"errors": [{"code": "ECHO", "message": " ".join(sorted(sent)) + " " + PASSWORD}]}).encode()
        for pattern in ("/manifests/", "/token"):
            registry.server.fail(pattern, times=99, reply=Reply(status, body))
        with pytest.raises(KedgeError) as caught:
            client.get_manifest("team/app", "1.0")
        problem = caught.value
        text = "".join(traceback.format_exception(problem)) + json.dumps(problem.as_dict()) + " ".join(waits.notes)
        for secret in {PASSWORD, *(each.partition(" ")[2] for each in sent)}:
            assert secret not in text
