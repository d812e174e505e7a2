# SPDX-License-Identifier: BSD-3-Clause
"""An OCI registry in this process, over real HTTP, that enforces what nvcr.io enforces.

Blobs come from a second server on another port that answers 400 to any Authorization header. Faults are set on
`registry.server.faults` and `registry.storage.faults`; what arrived is in their `log`.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

from kedge.base.digest import Digest
from kedge.base.manifest import OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST, Descriptor
from tests.fakes.http_server import FakeServer, Recorded, Reply

_ROUTE = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs|tags)/(?P<rest>.+)\Z")


@dataclass
class Policy:
    """How the registry behaves."""

    auth: str = "none"  # none, basic, bearer, nvcr
    users: Mapping[str, str] = field(default_factory=dict)  # user -> password
    private: frozenset[str] = frozenset()  # repositories that need a known user (401)
    gated: Mapping[str, frozenset[str]] = field(default_factory=dict)  # repository -> users who accepted the licence
    redirect_blobs: bool = False
    ignore_range: bool = False
    page: int = 1000  # tags per page, at most
    absolute_links: bool = False
    realm: str | None = None  # instead of our own token service
    token_field: str = "token"
    expires_in: int | None = 300
    identity_tokens: Mapping[str, str] = field(default_factory=dict)  # identity token -> user
    challenges: list[str] | None = None  # sent before the true one
    patch_limit: int | None = None  # bodies larger than this are answered with 413
    can_mount: bool = True


def nvcr(**changes: object) -> Policy:
    """The peculiarities of nvcr.io: a token for every call, a realm with a query, storage elsewhere."""
    return Policy(auth="nvcr", redirect_blobs=True, **changes)  # type: ignore[arg-type]


class FakeRegistry:
    """A registry with some repositories; use as a context manager."""

    def __init__(self, policy: Policy | None = None, *, tls: tuple[Path, Path] | None = None, name: str = "") -> None:
        self.policy = policy or Policy()
        self.server = FakeServer(self._answer, tls=tls)
        self.storage = FakeServer(self._answer_storage, tls=tls)
        self.name = name or self.server.host  # what clients call us, where a proxy stands in between
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.repository_blobs: dict[str, set[str]] = {}
        self.uploads: dict[str, bytearray] = {}
        self.tokens: dict[str, tuple[str, frozenset[str]]] = {}  # token -> user, scopes

    @property
    def host(self) -> str:
        return self.server.host

    def __enter__(self) -> FakeRegistry:
        self.server.__enter__()
        self.storage.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self.server.__exit__(*details)
        self.storage.__exit__(*details)

    # What is in it

    def add_blob(self, repository: str, data: bytes, media_type: str = OCI_LAYER_GZIP) -> Descriptor:
        digest = Digest.of(data)
        self.blobs[str(digest)] = data
        self.repository_blobs.setdefault(repository, set()).add(str(digest))
        return Descriptor(media_type, digest, len(data))

    def add_manifest(self, repository: str, tag: str, raw: bytes, media_type: str = OCI_MANIFEST) -> Digest:
        digest = Digest.of(raw)
        self.manifests[repository, tag] = self.manifests[repository, str(digest)] = (raw, media_type)
        return digest

    def add_image(self, repository: str, tag: str, layers: Iterable[bytes], config: bytes = b"{}") -> Digest:
        described = [self.add_blob(repository, layer).as_json() for layer in layers]
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": self.add_blob(repository, config, OCI_CONFIG).as_json(),
            "layers": described,
        }
        return self.add_manifest(repository, tag, json.dumps(document).encode())

    # Answers

    def _answer(self, request: Recorded) -> Reply:
        if request.path in ("/proxy_auth", "/token"):
            realm = self.policy.realm  # a token service that is elsewhere is not here, too
            return self._give_token(request) if not realm or request.path in realm else Reply(404, b"not here")
        if not request.path.startswith("/v2/"):
            return Reply(404, b"not here")
        match = _ROUTE.match(request.path)
        repository = match["name"] if match else ""
        refusal = self._refuse(request, repository)
        if refusal is not None:
            return refusal
        if match is None:
            return Reply(200, b"{}", {"Content-Type": "application/json"})
        if match["kind"] == "manifests":
            return self._manifests(request, repository, match["rest"])
        if match["kind"] == "tags":
            return self._tags(request, repository)
        if match["rest"].startswith("uploads"):
            return self._upload(request, repository, match["rest"].removeprefix("uploads").strip("/"))
        return self._blob(request, repository, match["rest"])

    def _refuse(self, request: Recorded, repository: str) -> Reply | None:
        auth, user = self.policy.auth, ""
        if auth == "none":
            return None
        scheme, _, value = request.authorization.partition(" ")
        if auth == "basic":
            user = self._check_basic(value) if scheme == "Basic" else ""
            return None if user else self._challenge('Basic realm="fake, with a comma"')
        if scheme != "Bearer" or value not in self.tokens:  # nvcr.io refuses Basic here, too
            return self._challenge(self._bearer_challenge(request, repository))
        user, scopes = self.tokens[value]
        needed = "pull" if request.method in ("GET", "HEAD") else "push"
        if repository and not any(_covers(scope, repository, needed) for scope in scopes):
            return self._challenge(self._bearer_challenge(request, repository))
        if repository in self.policy.private and not user:
            return _error(401, "UNAUTHORIZED", "authentication required")
        accepted = self.policy.gated.get(repository)
        if accepted is not None and user not in accepted:
            return _error(403 if user else 401, "DENIED", "requested access to the resource is denied")
        if needed == "push" and not user:
            return _error(401, "UNAUTHORIZED", "log in to push")
        return None

    def _challenge(self, text: str) -> Reply:
        headers: dict[str, str | list[str]] = {"WWW-Authenticate": [*(self.policy.challenges or []), text]}
        body = json.dumps({"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}).encode()
        return Reply(401, body, {**headers, "Content-Type": "application/json"})

    def _bearer_challenge(self, request: Recorded, repository: str) -> str:
        scope = f"repository:{repository}:pull,push" if repository else ""
        base = f"{self.server.scheme}://{self.name}"
        if self.policy.auth == "nvcr":
            query = f"?scope={scope}" if scope else ""
            return f'Bearer realm="{self.policy.realm or base + "/proxy_auth" + query}"'
        actions = "pull" if request.method in ("GET", "HEAD") else "pull,push"
        realm = self.policy.realm or f"{base}/token"
        return f'Bearer realm="{realm}",service="fake registry",scope="repository:{repository}:{actions}"'

    def _check_basic(self, value: str) -> str:
        try:
            user, _, password = base64.b64decode(value).decode().partition(":")
        except ValueError:
            return ""
        return user if self.policy.users.get(user) == password and user else ""

    def _give_token(self, request: Recorded) -> Reply:
        user, scopes = "", request.query.get("scope", [])
        scheme, _, value = request.authorization.partition(" ")
        if request.method == "POST":
            form = parse_qs(request.body.decode())
            user = self.policy.identity_tokens.get(form.get("refresh_token", [""])[0], "")
            scopes = form.get("scope", [""])[0].split(" ")
            if not user:
                return _error(401, "UNAUTHORIZED", "unknown refresh token")
        elif scheme == "Basic":
            user = self._check_basic(value)
            if not user:
                # A careless service echoes what it got; clients must not pass that on.
                return _error(401, "UNAUTHORIZED", f"bad credentials {request.authorization} in a request")
        elif scheme:
            return _error(400, "BAD", "only basic is known here")
        token = secrets.token_urlsafe(24)
        self.tokens[token] = (user, frozenset(scopes))
        answer: dict[str, object] = {self.policy.token_field: token}
        if self.policy.expires_in is not None:
            answer["expires_in"] = self.policy.expires_in
        return Reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _manifests(self, request: Recorded, repository: str, reference: str) -> Reply:
        if request.method == "PUT":
            kind = request.headers.get("content-type", "")
            digest = self.add_manifest(repository, reference, request.body, kind)
            return Reply(201, headers={"Docker-Content-Digest": str(digest), "Location": request.path})
        if (repository, reference) not in self.manifests:
            known = any(name == repository for name, _ in self.manifests)
            return _error(404, "MANIFEST_UNKNOWN" if known else "NAME_UNKNOWN", "not known to registry")
        raw, kind = self.manifests[repository, reference]
        return Reply(200, raw, {"Content-Type": kind, "Docker-Content-Digest": str(Digest.of(raw))})

    def _tags(self, request: Recorded, repository: str) -> Reply:
        tags = sorted(tag for name, tag in self.manifests if name == repository and not tag.startswith("sha256:"))
        if not tags:
            return _error(404, "NAME_UNKNOWN", "repository name not known to registry")
        start = request.query.get("last", [""])[0]
        rest = [tag for tag in tags if tag > start]
        count = min(self.policy.page, int(request.query.get("n", ["100"])[0]))
        page = rest[:count]
        headers = {"Content-Type": "application/json"}
        if len(rest) > count:
            base = self.server.url if self.policy.absolute_links else ""
            headers["Link"] = f'<{base}/v2/{repository}/tags/list?n={count}&last={page[-1]}>; rel="next"'
        return Reply(200, json.dumps({"name": repository, "tags": page}).encode(), headers)

    def _blob(self, request: Recorded, repository: str, digest: str) -> Reply:
        if digest not in self.repository_blobs.get(repository, ()):
            return _error(404, "BLOB_UNKNOWN", "blob unknown to registry")
        if self.policy.redirect_blobs and request.method == "GET":
            return Reply(307, headers={"Location": f"{self.storage.url}/{digest}?X-Signature=presigned-secret"})
        return self._send_blob(request, digest)

    def _answer_storage(self, request: Recorded) -> Reply:
        if request.authorization:
            return Reply(400, b"<Error>Only one auth mechanism allowed</Error>", {"Content-Type": "application/xml"})
        if request.query.get("X-Signature") != ["presigned-secret"]:
            return Reply(403, b"<Error>signature</Error>", {"Content-Type": "application/xml"})
        return self._send_blob(request, request.path.strip("/"))

    def _send_blob(self, request: Recorded, digest: str) -> Reply:
        data, wanted = self.blobs[digest], request.headers.get("range")
        headers = {"Content-Type": "application/octet-stream", "Docker-Content-Digest": digest}
        if wanted is None or self.policy.ignore_range:
            return Reply(200, data, headers)
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        if start >= len(data):
            return Reply(416, headers={"Content-Range": f"bytes */{len(data)}"})
        return Reply(206, data[start:], {**headers, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})

    def _upload(self, request: Recorded, repository: str, identity: str) -> Reply:
        if request.method == "POST":
            return self._begin_upload(request, repository)
        if identity not in self.uploads:
            return _error(404, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry")
        data = self.uploads[identity]
        # A relative Location with a query that changes: clients must neither rebuild nor keep it.
        headers = {"Location": f"/v2/{repository}/blobs/uploads/{identity}?state={len(data) + len(request.body)}"}
        if request.method == "GET":
            return Reply(204, headers={**headers, "Range": f"0-{max(0, len(data) - 1)}"})
        if self.policy.patch_limit is not None and len(request.body) > self.policy.patch_limit:
            return Reply(413, b"request entity too large", {"Content-Type": "text/plain"})
        if request.query.get("state") != [str(len(data))]:
            return _error(400, "BLOB_UPLOAD_INVALID", "stale state in the address")
        if request.method == "PATCH":
            if request.headers.get("content-range", f"{len(data)}-").partition("-")[0] != str(len(data)):
                return Reply(416, headers={**headers, "Range": f"0-{max(0, len(data) - 1)}"})
            data += request.body
            return Reply(202, headers={**headers, "Range": f"0-{max(0, len(data) - 1)}"})
        data += request.body
        digest = request.query["digest"][0]
        if str(Digest.of(bytes(data))) != digest:
            return _error(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
        del self.uploads[identity]
        self.add_blob(repository, bytes(data))
        return Reply(201, headers={"Location": f"/v2/{repository}/blobs/{digest}", "Docker-Content-Digest": digest})

    def _begin_upload(self, request: Recorded, repository: str) -> Reply:
        mount, source = request.query.get("mount", [""])[0], request.query.get("from", [""])[0]
        if self.policy.can_mount and mount in self.repository_blobs.get(source, ()):
            self.repository_blobs.setdefault(repository, set()).add(mount)
            return Reply(201, headers={"Location": f"/v2/{repository}/blobs/{mount}"})
        identity = secrets.token_hex(8)
        self.uploads[identity] = bytearray()
        return Reply(202, headers={"Location": f"/v2/{repository}/blobs/uploads/{identity}?state=0"})


def _covers(scope: str, repository: str, action: str) -> bool:
    kind, _, rest = scope.partition(":")
    name, _, actions = rest.rpartition(":")
    return kind == "repository" and name == repository and action in actions.split(",")


def _error(status: int, code: str, message: str) -> Reply:
    body = json.dumps({"errors": [{"code": code, "message": message, "detail": {}}]}).encode()
    return Reply(status, body, {"Content-Type": "application/json"})
