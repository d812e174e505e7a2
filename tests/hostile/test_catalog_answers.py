# SPDX-License-Identifier: BSD-3-Clause
"""Catalogues and lists of tags that lie or never end: a named error or nothing found, in bounded time and memory."""

from __future__ import annotations

import itertools
import json
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kedge.errors import NetworkFailed, RegistryProtocolError
from kedge.image.registry import catalog
from kedge.image.registry.catalog import HubCatalog, NgcCatalog
from kedge.image.registry.client import RegistryClient, TagLimits
from tests.builders.registry_access import make_access
from tests.builders.rows import each_row
from tests.fakes.http_server import FakeServer, Recorded, Reply

CATALOGS = [NgcCatalog, HubCatalog]
ODD: list[object] = [
    *(None, 5, -1, 1.5, True, "text", [], {}, [[]], [None], {"a": []}, 1 << 80, "\x1b]0;title\x07"),
    "a" * 100_000,
]


def search(kind: type, server: FakeServer, home: Path) -> catalog.CatalogAnswer:
    found = kind(make_access(home, retries=2).transport, server.url).search("pytorch", 10)
    assert isinstance(found, catalog.CatalogAnswer)
    return found


@each_row("kind", CATALOGS)
@each_row(
    "body",
    [b"", b"null", b"5", b"[]", b'"x"', b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe", b'{"results"', b"1" * 9000],
    ids=["empty", "null", "number", "list", "text", "deep list", "deep object", "binary", "cut", "long number"],
)
def test_catalog_answer_that_is_no_object_is_a_named_error(tmp_path: Path, kind: type, body: bytes) -> None:
    with FakeServer(lambda _request: Reply(200, body)) as server, pytest.raises(RegistryProtocolError):
        search(kind, server, tmp_path)


@each_row("value", ODD, ids=repr)
def test_catalog_values_of_wrong_types_find_nothing(tmp_path: Path, value: object) -> None:
    names = ("resourceId", "displayName", "description", "latestTag", "attributes", "dateModified")
    hub = ("repo_name", "short_description", "star_count", "pull_count", "is_official")
    wrong = [
        {"results": value, "resultTotal": value, "count": value},
        {"results": [value], "resultTotal": value},
        {"results": [{"resources": value}]},
        {"results": [{"resources": [value, dict.fromkeys(names, value)]}, dict.fromkeys(hub, value)]},
    ]
    for document, kind in itertools.product(wrong, CATALOGS):
        body = json.dumps(document).encode()
        with FakeServer(lambda _request, body=body: Reply(200, body)) as server:  # type: ignore[misc]
            answer = search(kind, server, tmp_path)
        assert all(entry.name.count("/") >= 1 for entry in answer.entries)
        assert "\x1b" not in repr(answer)


@each_row("name", ["../../etc", "a/../b", "nvidia/py torch", "nvidia/\x1b[2J", "A/B", "a//b", "-x/y", ""])
def test_catalog_names_that_cannot_be_pulled_are_left_out(tmp_path: Path, name: str) -> None:
    document = {"results": [{"resources": [{"resourceId": name}], "repo_name": name}]}
    for kind in CATALOGS:
        with FakeServer(lambda _request: Reply(200, json.dumps(document).encode())) as server:
            assert not search(kind, server, tmp_path).entries


def test_catalog_answer_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    huge = Reply(200, b"{}", {"Content-Length": str(1 << 30)})
    with FakeServer(lambda _request: huge) as server, pytest.raises(RegistryProtocolError, match="is longer than"):
        search(NgcCatalog, server, tmp_path)
    with endless() as address:
        tracemalloc.start()
        with pytest.raises(RegistryProtocolError, match="is longer than"):
            NgcCatalog(make_access(tmp_path).transport, address).search("x", 5)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * catalog.LARGEST_ANSWER


def test_catalog_answer_that_trickles_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "SECONDS", 1.0)
    begin = time.monotonic()
    with endless(pause=0.05) as address, pytest.raises(NetworkFailed, match="too slowly"):
        NgcCatalog(make_access(tmp_path).transport, address).search("x", 5)
    assert time.monotonic() - begin < 60


def test_catalog_redirects_end_and_leave_nothing_secret(tmp_path: Path) -> None:
    def send_on(request: Recorded) -> Reply:
        return Reply(302, headers={"Location": f"/again?{len(request.path)}-{next(count)}"})

    count = itertools.count()
    with FakeServer(send_on) as server, pytest.raises(RegistryProtocolError, match="redirects: "):
        search(HubCatalog, server, tmp_path)
    assert len(server.log) < 12
    elsewhere = Reply(302, headers={"Location": "file:///etc/passwd"})
    with FakeServer(lambda _request: elsewhere) as server, pytest.raises(RegistryProtocolError, match="not an http"):
        search(HubCatalog, server, tmp_path)


@contextmanager
def endless(pause: float = 0.0) -> Iterator[str]:
    """A server that answers 200 and does not come to the end of its body, for nobody waits or has room so long."""
    body = Reply(200, bytes(8 * catalog.LARGEST_ANSWER))
    with FakeServer(lambda _request: body) as server:
        server.fail("", times=99, unframed=True, trickle=pause)
        yield server.url


# Lists of tags

SMALL = TagLimits(pages=20, tags=500, size=100_000, seconds=30, fruitless=3)


@contextmanager
def paged(make_page: object) -> Iterator[tuple[RegistryClient, FakeServer]]:
    def answer(request: Recorded) -> Reply:
        if not request.path.endswith("/tags/list"):
            return Reply(200, b"{}")
        number = int(request.query.get("page", ["0"])[0])
        tags, link = make_page(number)  # type: ignore[operator]
        headers = {"Content-Type": "application/json"}
        if link:
            headers["Link"] = f'<{link}>; rel="next"'
        return Reply(200, json.dumps({"name": "a/b", "tags": tags}).encode(), headers)

    with FakeServer(answer) as server:
        yield RegistryClient(server.host, make_access(Path("/nonexistent"))), server


def following(number: int) -> str:
    return f"/v2/a/b/tags/list?page={number + 1}"


@each_row(
    ("make_page", "words"),
    [
        (lambda n: ([f"t{n}-{i}" for i in range(10)], following(n)), "has no end: .* tags on"),
        (lambda n: ([f"t{n}-{i}" for i in range(600)], following(n)), "has no end: 600 tags on 1 pages"),
        (lambda n: ([], following(n)), "3 pages without a new tag"),
        (lambda n: (["same"], following(n)), "3 pages without a new tag"),
        (lambda n: ([f"{n}" + "x" * 90 + str(i) for i in range(400)], following(n)), "has no end|is longer than"),
        (lambda n: (["a"], following(n % 2)), "goes in a circle|without a new tag"),
    ],
    ids=["new tags for ever", "too many at once", "empty pages", "the same page", "too many bytes", "a circle"],
)
def test_endless_pages_of_tags_are_a_named_error(make_page: object, words: str) -> None:
    with paged(make_page) as (client, server):
        with pytest.raises(RegistryProtocolError, match=words):
            list(client.list_tags("a/b", SMALL))
        assert len(server.seen("tags/list")) <= SMALL.pages + 1


def test_endless_pages_end_in_time_by_default() -> None:
    begin = time.monotonic()
    with paged(lambda n: ([], following(n))) as (client, _server), pytest.raises(RegistryProtocolError):
        list(client.list_tags("a/b"))
    assert time.monotonic() - begin < 60


def test_slow_pages_of_tags_end() -> None:
    def make_page(number: int) -> tuple[list[str], str]:
        time.sleep(0.2)
        return [f"t{number}"], following(number)

    with paged(make_page) as (client, _server), pytest.raises(RegistryProtocolError, match="has no end after"):
        list(client.list_tags("a/b", TagLimits(seconds=0.7)))


def test_pages_of_tags_on_other_hosts_are_not_read() -> None:
    with FakeServer(lambda _request: Reply(200, b'{"tags":["stolen"]}')) as other:
        elsewhere = f"{other.url}/v2/a/b/tags/list"
        with (
            paged(lambda _n: (["a"], elsewhere)) as (client, _server),
            pytest.raises(RegistryProtocolError, match="leaves the registry"),
        ):
            list(client.list_tags("a/b"))
        assert not other.log


def test_tags_that_are_none_are_left_out() -> None:
    odd = ["ok", 5, None, "a b", "\x1b[2J", "../x", "", "x" * 200, ["y"], "ok"]
    with paged(lambda _n: (odd, "")) as (client, _server):
        assert list(client.list_tags("a/b")) == ["ok"]
