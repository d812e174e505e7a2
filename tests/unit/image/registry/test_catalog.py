# SPDX-License-Identifier: BSD-3-Clause
"""The catalogues: what is asked of them, and what is made of their answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kedge.errors import NetworkFailed, RateLimited, RegistryProtocolError
from kedge.image.clean_config import clean_text
from kedge.image.registry.catalog import HubCatalog, NgcCatalog
from tests.builders.registry_access import make_access
from tests.builders.rows import each_row
from tests.fakes.http_server import FakeServer, Reply

KEY = "nvapi-very-secret-key"
NGC = {
    "resultTotal": 640,
    "results": [
        {
            "groupValue": "CONTAINER",
            "resources": [
                {
                    "resourceId": "nvidia/pytorch",
                    "displayName": "PyTorch",
                    "description": "PyTorch is a GPU\naccelerated \x1b[31mtensor\x1b[0m framework.",
                    "latestTag": "26.08-py3",
                    "dateModified": "2026-08-31T10:00:00.000Z",
                },
                {"resourceId": "nim/meta/llama", "attributes": [{"key": "latestTag", "value": "1"}]},
                {"resourceId": "nvidia/pytorch", "displayName": "the same again"},
            ],
        }
    ],
}
HUB = {
    "count": 9,
    "results": [
        {"repo_name": "pytorch/pytorch", "star_count": 1200, "pull_count": 10_000_000, "is_official": False},
        {"repo_name": "ubuntu", "short_description": "", "star_count": 5, "pull_count": 6, "is_official": True},
    ],
}


def serve(document: object) -> FakeServer:
    return FakeServer(lambda _request: Reply(200, json.dumps(document).encode(), {"Content-Type": "application/json"}))


def test_ngc_search_asks_with_json_and_reads_the_groups(tmp_path: Path) -> None:
    with serve(NGC) as server:
        access = make_access(tmp_path, {"NGC_API_KEY": KEY, "DOCKER_USERNAME": "u", "DOCKER_PASSWORD": KEY})
        answer = NgcCatalog(access.transport, server.url).search("pytorch & more", 7)
        [request] = server.log
    assert request.path == "/v2/search/catalog/resources/CONTAINER"
    assert json.loads(request.query["q"][0]) == {"query": "pytorch & more", "page": 0, "pageSize": 7}
    assert not request.authorization
    assert KEY not in str(request)
    assert answer.total == 640
    first, second = answer.entries
    assert (first.name, first.title, first.latest_tag) == ("nvcr.io/nvidia/pytorch", "PyTorch", "26.08-py3")
    assert first.description == "PyTorch is a GPU accelerated [31mtensor [0m framework."
    assert first.updated == "2026-08-31"
    assert (second.name, second.latest_tag) == ("nvcr.io/nim/meta/llama", "1")


def test_hub_search_reads_names_to_pull_with(tmp_path: Path) -> None:
    with serve(HUB) as server:
        answer = HubCatalog(make_access(tmp_path).transport, server.url + "/").search("pytorch", 25)
        [request] = server.log
    assert request.path == "/v2/search/repositories/"
    assert request.query == {"query": ["pytorch"], "page_size": ["25"]}
    assert not request.authorization
    assert [entry.name for entry in answer.entries] == ["docker.io/pytorch/pytorch", "docker.io/library/ubuntu"]
    assert (answer.entries[0].stars, answer.entries[0].pulls) == (1200, 10_000_000)
    assert [entry.is_official for entry in answer.entries] == [False, True]
    assert answer.total == 9


@each_row(
    ("reply", "kind", "words"),
    [
        (Reply(400, b"{}"), RegistryProtocolError, "status 400"),
        (Reply(401, b"{}"), RegistryProtocolError, "status 401"),
        (Reply(429, b""), RateLimited, "rate limit of"),
        (Reply(503, b""), NetworkFailed, "server error"),
        (Reply(200, b"<html>", {"Content-Type": "text/html"}), RegistryProtocolError, "a web page, not with data"),
        (Reply(200, b"[]"), RegistryProtocolError, "not a JSON object"),
    ],
)
def test_catalog_that_says_no_is_a_named_error(tmp_path: Path, reply: Reply, kind: type[Exception], words: str) -> None:
    with FakeServer(lambda _: reply) as server, pytest.raises(kind, match=words):
        NgcCatalog(make_access(tmp_path).transport, server.url).search("x", 5)
    assert len(server.log) == 1  # it is not asked again


def test_clean_text_is_one_short_line() -> None:
    assert clean_text("a\r\n\tb\x00c\u202ed") == "a b c d"
    assert len(clean_text("long " * 1000, 300)) <= 300
    assert clean_text(5) == clean_text(None) == ""
