# SPDX-License-Identifier: BSD-3-Clause
"""library:// and plain http files: descriptions, redirects without the token, ranges, resumed and changed files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from kedge import errors
from kedge.base.digest import Digest
from kedge.image.registry.download import download_url, open_url
from kedge.image.registry.library import LibraryClient, find_library
from kedge.image.registry.secret import Secret
from kedge.image.registry.transport import HttpTransport
from tests.builders.registry_access import make_access
from tests.fakes.files import FileServer
from tests.fakes.http_server import FakeServer, Recorded, Reply

SIF = bytes(range(251)) * 4000
TOKEN = "library-token-secret"


class FakeLibrary(FakeServer):
    """One image, kept on another server; private when it has `token`."""

    def __init__(self, token: str = "") -> None:
        super().__init__(self.send)
        self.storage = FileServer(SIF)
        self.token = token

    def __enter__(self) -> FakeLibrary:
        self.storage.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        self.storage.__exit__(*details)

    def send(self, request: Recorded) -> Reply:
        if request.path == "/assets/config/config.prod.json":
            return Reply(200, json.dumps({"libraryAPI": {"uri": self.url}}).encode())
        if self.token and request.authorization != f"Bearer {self.token}":
            return Reply(401, b'{"error":{"code":401,"message":"Unauthorized"}}')
        if not request.path.endswith("/library/default/alpine:3") or request.query.get("arch") != ["amd64"]:
            return Reply(404, b'{"error":{"code":404,"message":"Not Found"}}')
        if request.path.startswith("/v1/images/"):
            data = {"hash": f"sha256.{Digest.of(SIF).hex}", "size": len(SIF), "architecture": "amd64", "uploaded": True}
            return Reply(200, json.dumps({"data": data}).encode())
        return Reply(303, headers={"Location": f"{self.storage.url}/file?sig=x"})


def transport(home: Path) -> HttpTransport:
    return make_access(home).transport


def test_library_image_is_described_and_read_by_range(tmp_path: Path) -> None:
    with FakeLibrary(TOKEN) as library:
        client = LibraryClient(library.url + "/", transport(tmp_path), Secret(TOKEN))
        image = client.describe("library/default/alpine:3", "amd64")
        assert (image.digest, image.size) == (Digest.of(SIF), len(SIF))
        with client.open_image(image) as stream:
            assert b"".join(stream) == SIF
        with client.open_image(image, 1000) as stream:
            assert (stream.offset, b"".join(stream)) == (1000, SIF[1000:])
        assert all(not each.authorization for each in library.storage.log)


@pytest.mark.parametrize("body", [b"[]", b"{}", b"not json", b'{"data":[]}', b"{" * 99999])
def test_library_strange_descriptions_are_refused(tmp_path: Path, body: bytes) -> None:
    with FakeLibrary() as library:
        library.fail("/v1/images", reply=Reply(200, body))
        with pytest.raises(errors.RegistryProtocolError):
            LibraryClient(library.url, transport(tmp_path)).describe("a", "amd64")


def test_library_is_found_in_remote_yaml_and_its_token_stays_there(tmp_path: Path) -> None:
    with FakeLibrary(TOKEN) as library, FakeLibrary() as other:
        path = tmp_path / ".apptainer/remote.yaml"
        path.parent.mkdir()
        path.write_text(f"Active: site\nRemotes:\n  site:\n    URI: {library.url}\n    Token: {TOKEN}\n")
        assert find_library(transport(tmp_path), tmp_path).describe("library/default/alpine:3", "amd64").size == len(
            SIF
        )
        named = find_library(transport(tmp_path), tmp_path, address=other.url)
        assert named.describe("library/default/alpine:3", "amd64")
        assert all(not each.authorization for each in other.log)
        chosen = find_library(transport(tmp_path), tmp_path, environ={"APPTAINER_LIBRARY": library.url})
        assert chosen.describe("library/default/alpine:3", "amd64")  # it is the remote's own: the token goes along


def test_library_none_set_up_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidSetting, match="no library server") as caught:
        find_library(transport(tmp_path), tmp_path)
    assert "https://library.sylabs.io" in (caught.value.hint or "")


def test_download_is_resumed_after_breaks(tmp_path: Path) -> None:
    with FakeLibrary() as library:
        for at in (100_000, 300_000, 1):
            library.storage.fail("GET", cut_at=at)
        file, sizes, advanced = io.BytesIO(), [], []
        done = download_url(
            transport(tmp_path), f"{library.storage.url}/file.sif", file,
            announce=lambda size: (sizes.append(size), advanced.append)[1],
        )  # fmt: skip
        assert (done.digest, done.size) == (Digest.of(SIF), len(SIF))
        assert file.getvalue() == SIF
        assert sizes == [len(SIF)]
        assert sum(advanced) == len(SIF)
        assert [each.headers.get("range") for each in library.storage.log][1] == "bytes=100000-"


def test_download_of_a_file_that_changes_starts_again(tmp_path: Path) -> None:
    with FakeLibrary() as library:
        library.storage.fail("GET", cut_at=1000)
        file = io.BytesIO()

        def change(_size: int | None) -> object:
            library.storage.etag = '"2"'
            return lambda _amount: None

        done = download_url(transport(tmp_path), f"{library.storage.url}/f", file, announce=change)
        assert file.getvalue() == SIF
        assert done.digest == Digest.of(SIF)


def serve(*versions: Reply) -> FakeServer:
    """A plain web server that knows ranges but no If-Range; each request gets the next version, the last for good."""
    left = list(versions)

    def answer(request: Recorded) -> Reply:
        reply = left.pop(0) if len(left) > 1 else left[0]
        start = int((request.headers.get("range") or "bytes=0-")[6:-1])
        size = len(reply.body)
        place = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        return Reply(206 if start else 200, reply.body[start:], {**reply.headers, **place})

    return FakeServer(answer)


@pytest.mark.parametrize("headers", [({"ETag": '"1"'}, {"ETag": '"2"'}), ({}, {})], ids=["tags", "sizes"])
def test_download_never_joins_two_versions(tmp_path: Path, headers: tuple[dict[str, str], dict[str, str]]) -> None:
    new = bytes(2000)
    with serve(Reply(body=b"x" * 3000, headers=headers[0]), Reply(body=new, headers=headers[1])) as server:
        server.fail("GET", cut_at=1000)
        file = io.BytesIO()
        done = download_url(transport(tmp_path), f"{server.url}/f", file)
        assert (file.getvalue(), done.digest) == (new, Digest.of(new))


def test_download_from_the_start_again_and_again_ends(tmp_path: Path) -> None:
    with FakeServer(lambda _request: Reply(200, bytes(5000))) as server:  # it knows no ranges
        server.fail("GET", times=99, cut_at=3000)
        advanced: list[int] = []
        with pytest.raises(errors.NetworkFailed, match="broke after"):
            download_url(transport(tmp_path), f"{server.url}/f", io.BytesIO(), announce=lambda _: advanced.append)
        assert len(server.log) <= 6
        assert sum(advanced) <= 5000


def test_download_that_never_gets_on_ends(tmp_path: Path) -> None:
    with FakeLibrary() as library:
        library.storage.fail("GET", times=99, cut_at=0)
        with pytest.raises(errors.NetworkFailed, match="broke after 0"):
            download_url(transport(tmp_path), f"{library.storage.url}/f", io.BytesIO())
        assert len(library.storage.log) == 5


def test_download_limit_and_missing_and_web_page(tmp_path: Path) -> None:
    with FakeLibrary() as library:
        url = f"{library.storage.url}/f"
        with pytest.raises(errors.CorruptImage, match="longer than the 1000 bytes"):
            download_url(transport(tmp_path), url, io.BytesIO(), limit=1000)
        library.storage.fail("GET", reply=Reply(404))
        with pytest.raises(errors.ImageNotFound, match="no file at"):
            open_url(transport(tmp_path), url + "?sig=secret-sig")
        library.storage.fail("GET", reply=Reply(200, b"<html>", {"Content-Type": "text/html"}))
        with pytest.raises(errors.UnsupportedFormat, match="web page"):
            open_url(transport(tmp_path), url)
