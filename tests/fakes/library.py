# SPDX-License-Identifier: BSD-3-Clause
"""A remote as Apptainer knows them: announced services, a library that can be searched, and tokens."""

from __future__ import annotations

import json

from tests.fakes.http_server import FakeServer, Recorded, Reply

TOKEN = "remote-token-secret"
FINGERPRINT = "0102030405060708091011121314151617181920"
IMAGE = {
    "hash": "sha256.abc",
    "entityName": "library",
    "collectionName": "default",
    "containerName": "alpine",
    "tags": ["3", "latest"],
    "description": "a small one",
    "fingerprints": [FINGERPRINT],
    "size": 1048576,
    "uploaded": True,
    "signed": True,
    "architecture": "arm64",
}


class FakeRemote:
    """All services on one port; `deleted` holds what was asked to be deleted."""

    def __init__(self) -> None:
        self.server = FakeServer(self.answer)
        self.deleted: list[str] = []

    def __enter__(self) -> FakeRemote:
        self.server.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self.server.__exit__(*details)

    @property
    def url(self) -> str:
        """Where it is."""
        return self.server.url

    def answer(self, request: Recorded) -> Reply:
        """What the services say."""
        if request.path == "/assets/config/config.prod.json":
            names = ("libraryAPI", "keystoreAPI", "tokenAPI")
            return _reply({name: {"uri": self.url} for name in names})
        if request.path == "/v1/token-status":
            return Reply(200 if request.authorization == f"Bearer {TOKEN}" else 401)
        if request.path == "/v1/search":
            found = [IMAGE] if request.query.get("value") == ["alpine"] else []
            return _reply({"data": {"entity": [], "collection": [], "container": [], "image": found}})
        if request.method == "DELETE" and "missing" not in request.path:
            self.deleted.append(f"{request.path} {request.query['arch'][0]}")
            return _reply({"data": {}})
        if request.path == "/version":
            return _reply({"data": {"version": "v1.2.3"}})
        return Reply(404, b'{"error":{"code":404,"message":"not found"}}', {"Content-Type": "application/json"})


def _reply(document: object) -> Reply:
    return Reply(200, json.dumps(document).encode(), {"Content-Type": "application/json"})
