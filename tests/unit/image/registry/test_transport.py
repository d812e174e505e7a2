# SPDX-License-Identifier: BSD-3-Clause
"""The parts of the transport that need no server: proxies, waiting, ranges, links, addresses, hints."""

from __future__ import annotations

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import Manifest, parse_manifest
from kedge.errors import InvalidSetting, RegistryProtocolError
from kedge.image.registry.blob_stream import Part, parse_content_range
from kedge.image.registry.client import next_link
from kedge.image.registry.oras import sif_config, sif_layer, sif_manifest
from kedge.image.registry.proxies import Proxies, is_loopback, parse_proxy
from kedge.image.registry.remote_yaml import parse_remotes
from kedge.image.registry.response_errors import Situation, ngc_page, read_error_body
from kedge.image.registry.secret import Secret
from kedge.image.registry.transport import is_same_origin, parse_retry_after, split_url
from tests.builders.rows import each_row

PASSWORD = "pr0xy-p@ss"


@each_row(
    ("environ", "scheme", "host", "expected"),
    [
        ({"https_proxy": "http://p:1"}, "https", "nvcr.io", "http://p:1"),
        ({"HTTPS_PROXY": "p:1"}, "https", "nvcr.io", "http://p:1"),
        ({"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:1"}, "https", "nvcr.io", "http://low:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https", "nvcr.io", None),
        ({"ALL_PROXY": "http://p:1"}, "https", "nvcr.io", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "nvcr.io"}, "https", "nvcr.io", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": ".io"}, "https", "nvcr.io", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "*.io"}, "https", "nvcr.io", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "cr.io"}, "https", "nvcr.io", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "nvcr.io:8443"}, "https", "nvcr.io", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "nvcr.io:443"}, "https", "nvcr.io", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "a, b ,*"}, "https", "nvcr.io", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https", "10.1.2.3", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https", "11.1.2.3", "http://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "http", "127.0.0.1", None),
        ({"ALL_PROXY": "http://p:1"}, "http", "localhost", None),
        ({}, "https", "nvcr.io", None),
    ],
)
def test_proxies_choose(environ: dict[str, str], scheme: str, host: str, expected: str | None) -> None:
    chosen = Proxies.from_environment(environ).choose(scheme, host, 443)
    assert (chosen.url if chosen else None) == expected


def test_proxy_login_is_taken_out_and_never_shown() -> None:
    proxy = parse_proxy("http://user:pr0xy-p%40ss@proxy.example:3128", "HTTPS_PROXY")
    assert proxy.url == "http://proxy.example:3128"
    assert proxy.authorization == Secret("Basic dXNlcjpwcjB4eS1wQHNz")
    assert PASSWORD not in repr(proxy)
    with pytest.raises(InvalidSetting) as caught:
        parse_proxy(f"socks5://user:{PASSWORD}@proxy.example:1080", "ALL_PROXY")
    assert PASSWORD not in f"{caught.value} {caught.value.context} {caught.value.hint}"
    with pytest.raises(InvalidSetting):
        parse_proxy("http://", "ALL_PROXY")


@each_row(
    ("host", "expected"),
    [
        *(("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("[::1]", True), ("a.localhost", True)),
        *(("10.0.0.1", False), ("localhost.evil.example", False), ("127.0.0.1.evil.example", False)),
        ("nvcr.io", False),
    ],
)
def test_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@each_row(
    ("value", "seconds"),
    [
        ("30", 30.0),
        (" 5 ", 5.0),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        *(("soon", None), ("", None), (None, None), ("-5", None), ("9" * 400, 999999999.0)),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, 100.0) == seconds


@each_row(
    ("value", "part"),
    [
        *(("bytes 5-9/10", Part(5, 9, 10)), ("bytes 5-9/*", Part(5, 9, None)), ("BYTES 0-0/1", Part(0, 0, 1))),
        *(("bytes 9-5/10", None), ("bytes 5-10/10", None), ("bytes */10", None), ("items 1-2/3", None), ("", None)),
        *((None, None), ("bytes 1-2/x", None)),
    ],
)
def test_content_range_parse(value: str | None, part: Part | None) -> None:
    assert parse_content_range(value) == part


@each_row(
    ("headers", "expected"),
    [
        (['</v2/a/tags/list?n=2&last=b>; rel="next"'], "/v2/a/tags/list?n=2&last=b"),
        (["<x>; rel=next"], "x"),
        (['<y>; rel="prev", <x>; rel="next"'], "x"),
        (['<x>; rel="last"'], None),
        (["junk"], None),
        ([], None),
    ],
)
def test_next_link(headers: list[str], expected: str | None) -> None:
    assert next_link(headers) == expected


def test_same_origin_compares_scheme_host_and_port() -> None:
    assert is_same_origin("https://A.example/x", "https://a.example:443/y")
    assert not is_same_origin("https://a.example", "http://a.example")
    assert not is_same_origin("https://a.example", "https://a.example:8443")
    assert not is_same_origin("https://a.example", "https://a.example.evil")


@each_row(
    "url", ["ftp://x/y", "https://", "http://a b/", "x", "https://h\r\nHost: evil/", "http://h:99999/", "file:///etc"]
)
def test_split_url_refuses_what_is_no_address(url: str) -> None:
    with pytest.raises(RegistryProtocolError):
        split_url(url)


@each_row(
    ("body", "kind", "codes", "text", "page"),
    [
        (b'{"errors":[{"code":"DENIED","message":"no"}]}', "application/json", {"DENIED"}, "DENIED: no", False),
        (b'{"errors":[{"code":"A"},{"message":"b"}]}', "", {"A", ""}, "A; b", False),
        (b'{"details":"incorrect username or password"}', "", set(), "incorrect username or password", False),
        (b"<html><body>Sign in</body></html>", "", set(), "", True),
        (b"\xef\xbb\xbf  <!DOCTYPE HTML>", "", set(), "", True),
        (b"anything", "text/html; charset=utf-8", set(), "", True),
        (b"plain\x1b[31m text\n", "text/plain", set(), "plain [31m text", False),
        (b"\xff\xfe", "", set(), "\ufffd\ufffd", False),
        (b"[1,2]", "", set(), "[1, 2]", False),
        (b'{"errors": {"code": 1}}', "", set(), "", False),
        (b"", "", set(), "", False),
    ],
)
def test_error_body_is_read(body: bytes, kind: str, codes: set[str], text: str, page: bool) -> None:
    said = read_error_body(body, kind)
    assert (set(said.codes), said.text, said.is_page) == (codes, text, page)


def test_error_body_is_shortened() -> None:
    assert len(read_error_body(b"x" * 60_000, "").text) <= 401


def test_situation_writes_tags_and_digests() -> None:
    assert Situation("r.io", "a/b", "1.0").image == "r.io/a/b:1.0"
    assert Situation("r.io", "a/b", "sha256:00").image == "r.io/a/b@sha256:00"
    assert Situation("r.io").image == "r.io"


def test_ngc_page_of_org_and_team() -> None:
    assert ngc_page("nvidia/pytorch").endswith("/orgs/nvidia/containers/pytorch")
    assert ngc_page("nim/meta/llama").endswith("/orgs/nim/teams/meta/containers/llama")


def test_sif_manifest_is_what_apptainer_writes() -> None:
    assert str(sif_config().digest) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    raw = sif_manifest(sif_layer(Digest.of(b"sif"), 3), "image.sif")
    manifest = parse_manifest(raw)
    assert isinstance(manifest, Manifest)
    assert manifest.is_sif
    assert manifest.layers[0].annotations == {"org.opencontainers.image.title": "image.sif"}
    assert raw == sif_manifest(sif_layer(Digest.of(b"sif"), 3), "image.sif")


REMOTE = """Active: "Site Cloud"
Remotes:
  DefaultRemote:
    URI: cloud.apptainer.org
    System: true
  Site Cloud:
    URI: cloud.site.example
    Token: eyJ-secret
    System: false
Credentials:
- URI: docker://r.example
  Auth: Basic xxx
"""


def test_remotes_active_one_is_found() -> None:
    remote = parse_remotes(REMOTE).chosen
    assert (remote.uri, remote.token) == ("cloud.site.example", Secret("eyJ-secret"))
    assert "eyJ" not in repr(remote)
    assert parse_remotes(REMOTE.replace('"Site Cloud"', "None")).chosen is None
    for text in ("", "Active: x", "Remotes:\n  x:\n", "\0", ": :\n  :", "Active: x\nRemotes:\n  x:\n    URI:\n"):
        assert parse_remotes(text).chosen is None
