# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pull` of files that are SIF images already: library://, oras://, http://; broken, changed, wrong, secret."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge import errors
from kedge.base.digest import Digest
from tests.builders import layers as build
from tests.builders.images import MACHINE, hash_file, make_config
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path
from tests.builders.warm_kedge import kedge
from tests.fakes.files import FileServer
from tests.fakes.http_server import Recorded, Reply
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says

OTHER = "amd64" if MACHINE == "arm64" else "arm64"


@pytest.fixture(scope="module")
def sif() -> Path:
    return fixture_path("busybox_arm64.sif")


class FakeLibrary(FileServer):
    """The Library API with one image."""

    has_digest = True

    def send(self, request: Recorded) -> Reply:
        if "library/default/busybox:1" not in request.path or request.query.get("arch") != ["arm64"]:
            return Reply(404, b'{"error":{"code":404,"message":"Not Found"}}', {"Content-Type": "application/json"})
        if request.path.startswith("/v1/images/"):
            digest = f"sha256.{Digest.of(self.data).hex}" if self.has_digest else "sif.5bd7b8c5"
            data = {"hash": digest, "size": len(self.data), "architecture": "arm64", "uploaded": True}
            return Reply(200, json.dumps({"data": data}).encode(), {"Content-Type": "application/json"})
        return super().send(request)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if "tmp-" in path.name or path.suffix == ".sif")


def check_delivered(path: Path, sif: Path) -> None:
    assert hash_file(path) == hash_file(sif)
    assert path.stat().st_mode & 0o777 == 0o755


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as served:
        yield served


def test_pull_library_image(tmp_path: Path, sif: Path) -> None:
    with FakeLibrary(sif.read_bytes()) as library:
        here = {"cache": tmp_path / "c", "cwd": tmp_path}
        words = ("pull", "--arch", "arm64", "--library", library.url)
        done = kedge(*words, "--json", "library://busybox:1", **here)
        # the name tells the architecture of an image that is not for this host
        name = "busybox_1.sif" if MACHINE == "arm64" else "busybox_1_arm64.sif"
        assert json.loads(done.stdout)["output"] == name
        assert json.loads(done.stdout)["digest"] == str(Digest.of(sif.read_bytes()))
        check_delivered(tmp_path / name, sif)
        library.log.clear()
        again = kedge(*words, "--json", "again.sif", "library://library/default/busybox:1", **here)
        assert json.loads(again.stdout)["how"] in ("copy", "reflink")
        assert not library.seen("imagefile")
        host = f"library://{library.host}/library/default/busybox:1"
        kedge("pull", "--arch", "arm64", "--no-https", "host.sif", host, **here)
        missing = kedge(*words, "library://nothing:1", check=False, **here)
    check_delivered(tmp_path / "host.sif", sif)
    assert missing.returncode == errors.ImageNotFound.exit_code
    assert "arm64" in missing.stderr


def test_pull_library_resumes_and_verifies(tmp_path: Path, sif: Path) -> None:
    with FakeLibrary(sif.read_bytes()) as library:
        words = ("pull", "--arch", "arm64", "--library", library.url, tmp_path / "x.sif", "library://busybox:1")
        library.fail("imagefile", cut_at=300_000)
        kedge(*words, cache=tmp_path / "c")
        assert any("range" in each.headers for each in library.seen("imagefile"))
        check_delivered(tmp_path / "x.sif", sif)
        library.fail("imagefile", corrupt_at=400_000, times=99)
        done = kedge(*words, "--force", cache=tmp_path / "other", check=False)
    assert done.returncode == errors.DigestMismatch.exit_code
    check_delivered(tmp_path / "x.sif", sif)  # the old file is still there


def test_pull_library_without_digest_is_asked_each_time(tmp_path: Path, sif: Path) -> None:
    with FakeLibrary(sif.read_bytes()) as library:
        library.has_digest = False
        for name in ("a.sif", "b.sif"):
            words = ("pull", "--arch", "arm64", "--library", library.url)
            kedge(*words, tmp_path / name, "library://busybox:1", cache=tmp_path / "c")
            check_delivered(tmp_path / name, sif)
        assert len(library.seen("imagefile")) == 2
    assert list((tmp_path / "c").rglob("images/*")) == []  # a copy that can never be used again is not kept


def test_pull_oras_is_stored_once_and_delivered_executable(tmp_path: Path, sif: Path, registry: FakeRegistry) -> None:
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    reference = f"oras://{registry.host}/sif/busybox:1"
    kedge("push", sif, reference, **here)
    done = kedge("pull", "--arch", "arm64", "--json", reference, umask=0o022, **here)
    assert json.loads(done.stdout)["output"] == "busybox_1.sif"
    registry.server.log.clear()
    kedge("pull", "--arch", "arm64", "docker.sif", f"docker://{registry.host}/sif/busybox:1", **here)
    assert not registry.server.seen("GET .*/blobs/")
    check_delivered(tmp_path / "busybox_1.sif", sif)
    check_delivered(tmp_path / "docker.sif", sif)
    large = [path for path in (tmp_path / "c/blobs").rglob("*") if path.is_file() and path.stat().st_size > 100_000]
    assert large == [], "the user's file has the same bytes"


def test_unpack_never_takes_a_pulled_file_and_nothing_else(tmp_path: Path, sif: Path, registry: FakeRegistry) -> None:
    """The cache gave its only copy away: it is the pull's file that is read, as long as its bytes are the same."""
    here = {"cache": tmp_path / "c", "cwd": tmp_path, "environment": {"KEDGE_NODEDIR": str(tmp_path / "node")}}
    reference = f"oras://{registry.host}/sif/busybox:1"
    kedge("push", sif, reference, **here)
    kedge("pull", "--arch", "arm64", "x.sif", reference, **here)
    registry.server.log.clear()
    done = kedge("unpack", "--json", "--pull", "never", reference, **here)
    assert (Path(json.loads(done.stdout)[0]["root"]) / "bin/busybox").exists()
    kedge("cache", "clean", "--force", "--type", "image", **here)
    kedge("cache", "clean", "--force", "--node", **here)
    with (tmp_path / "x.sif").open("r+b") as file:
        file.seek(300_000)
        file.write(b"changed")
    done = kedge("unpack", "--pull", "never", reference, check=False, **here)
    assert not registry.server.seen("/blobs/")
    assert done.returncode == errors.ImageNotFound.exit_code, done.stderr
    assert_says(done.stderr, "pull/been-changed-since-delivered", "x.sif")


def test_pull_files_into_other_forms(tmp_path: Path, sif: Path) -> None:
    with FileServer(sif.read_bytes()) as files:
        for form in ("sandbox", "squashfs", "oci-archive"):
            words = ("pull", "--arch", "arm64", "--format", form, tmp_path / form, f"{files.url}/busybox.sif")
            kedge(*words, cache=tmp_path / "c")
            assert (tmp_path / form).exists()
    assert (tmp_path / "sandbox/bin/busybox").exists()


@pytest.mark.parametrize("etag", ['"1"', ""])
def test_pull_address_resumes(tmp_path: Path, sif: Path, etag: str) -> None:
    with FileServer(sif.read_bytes(), etag) as files:
        files.fail("GET", length=sif.stat().st_size)  # the first answer is only looked at
        files.fail("GET", cut_at=200_000)
        kedge("pull", "--arch", "arm64", tmp_path / "x.sif", f"{files.url}/a/x.sif", cache=tmp_path / "c")
    check_delivered(tmp_path / "x.sif", sif)


def test_pull_address_again_uses_the_store_while_the_etag_is_the_same(tmp_path: Path, sif: Path) -> None:
    with FileServer(sif.read_bytes()) as files:
        here = {"cache": tmp_path / "c", "cwd": tmp_path}
        url = f"{files.url}/a/x.sif"
        kedge("pull", "--arch", "arm64", url, **here)
        again = kedge("pull", "--arch", "arm64", "--json", "again.sif", url, **here)
        assert json.loads(again.stdout)["how"] in ("copy", "reflink")
        files.etag = '"2"'
        changed = kedge("pull", "--arch", "arm64", "--json", "new.sif", url, **here)
        assert json.loads(changed.stdout)["how"] == "downloaded"
        files.etag = ""
        for name in ("three.sif", "four.sif"):  # nothing says whether it is the same: fetched each time
            done = kedge("pull", "--arch", "arm64", "--json", name, url, **here)
            assert json.loads(done.stdout)["how"] == "downloaded"
    for name in ("x.sif", "again.sif", "new.sif", "three.sif", "four.sif"):
        check_delivered(tmp_path / name, sif)


@each_row(
    ("name", "body", "headers", "error", "said"),
    [
        ("x.sif", b"<html>log in</html>", {"Content-Type": "text/html"}, errors.UnsupportedFormat, "web page"),
        ("x.sif", b"<!DOCTYPE html><p>log in", {}, errors.UnsupportedFormat, "web page"),
        ("x.sif", b'{"message": "quota"}', {"Content-Type": "application/json"}, errors.UnsupportedFormat, "JSON"),
        ("x.sif", b"", {}, errors.UnsupportedFormat, "empty"),
        ("x.sif", b"\x7fELF" + bytes(5000), {}, errors.UnsupportedFormat, "ELF"),
        ("x.sif", lambda data: gzip.compress(data[:50_000]), {}, errors.UnsupportedFormat, ""),
        ("x.sif", lambda data: data[: len(data) // 2], {}, errors.CorruptImage, ""),
        ("missing.sif", b"", {}, errors.ImageNotFound, ""),
    ],
)
def test_pull_address_of_something_else(tmp_path, sif, *, name, body, headers, error, said):
    with FileServer(body if isinstance(body, bytes) else body(sif.read_bytes())) as files:
        files.headers = headers
        words = ("pull", "--arch", "arm64", tmp_path / "x.sif", f"{files.url}/{name}")
        done = kedge(*words, cache=tmp_path / "c", check=False)
    assert done.returncode == error.exit_code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert leftovers(tmp_path) == []


def test_pull_address_passwords_and_tokens_are_never_shown_or_kept(tmp_path: Path, sif: Path) -> None:
    """Neither on the screen nor in the JSON, nor in any file of the store, nor in the image."""
    with FileServer(sif.read_bytes()) as files:
        url = f"http://me:pass-w0rd@{files.host}/x.sif?X-Token=t0ken"
        here = {"cache": tmp_path / "c", "cwd": tmp_path}
        texts = []
        for words in (("--json",), ("-v", "--force"), ("--dry-run", "--force"), ("--format", "oci-archive", "x.tar")):
            done = kedge("pull", "--arch", "arm64", *words, url, **here)
            texts.append(done.stdout + done.stderr)
        missing = kedge("pull", url.replace("x.sif", "missing.sif"), check=False, **here)
        texts.append(missing.stdout + missing.stderr)
    (tmp_path / "x.sif").unlink()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"pass-w0rd" not in data, path
            assert b"t0ken" not in data, path
    for text in texts:
        assert "pass-w0rd" not in text
        assert "t0ken" not in text


def test_pull_of_another_architecture_is_said_or_refused(tmp_path: Path, registry: FakeRegistry) -> None:
    tar = build.layer(build.file("hello", b"x"))
    registry.add_image("team/other", "1", [build.compress(tar)], make_config([tar], {}, OTHER))
    words = ("pull", "--arch", OTHER, tmp_path / "other.sif", f"docker://{registry.host}/team/other:1")
    kedge(*words, cache=tmp_path / "first")
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    with FileServer((tmp_path / "other.sif").read_bytes()) as files:
        url = f"{files.url}/x.sif"
        for name in ("fresh.sif", "stored.sif"):
            done = kedge("pull", name, url, **here)
            assert f"is for {OTHER}" in done.stderr
        for cache in ("c", "empty"):
            done = kedge("pull", "--arch", MACHINE, "no.sif", url, cache=tmp_path / cache, cwd=tmp_path, check=False)
            assert done.returncode == errors.NoMatchingPlatform.exit_code
            assert not (tmp_path / "no.sif").exists()
        silent = kedge("pull", "--arch", OTHER, "yes.sif", url, **here)
    assert "is for" not in silent.stderr
    assert os.access(tmp_path / "yes.sif", os.X_OK)


def test_pull_files_offline(tmp_path: Path) -> None:
    for reference in ("http://127.0.0.1:1/x.sif", "library://a:1"):
        done = kedge("pull", "--offline", reference, cache=tmp_path / "c", cwd=tmp_path, check=False)
        assert done.returncode == errors.ImageNotFound.exit_code


def add_foreign(registry: FakeRegistry, urls: list[str]) -> tuple[bytes, str]:
    """An image whose only layer the registry does not have; its bytes, and its reference."""
    tar = build.layer(build.file("elsewhere", b"kept elsewhere"))
    blob = build.compress(tar)
    registry.add_image("team/foreign", "1", [blob], make_config([tar]))
    document = json.loads(registry.manifests["team/foreign", "1"][0])
    layer = document["layers"][0]
    layer |= {"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "urls": urls}
    registry.add_manifest("team/foreign", "1", json.dumps(document).encode())
    registry.repository_blobs["team/foreign"].remove(layer["digest"])
    return blob, f"docker://{registry.host}/team/foreign:1"


def test_pull_gets_a_foreign_layer_from_the_first_address_that_has_it(tmp_path: Path) -> None:
    with FakeRegistry() as registry, FileServer(b"") as files:
        urls = ["ftp://127.0.0.1/x", f"{files.url}/missing.sif", f"{files.url}/layer"]
        files.data, reference = add_foreign(registry, urls)
        kedge("pull", tmp_path / "x", reference, "--sandbox", cache=tmp_path / "c")
        assert (tmp_path / "x/elsewhere").read_bytes() == b"kept elsewhere"
        assert [each.path for each in files.log] == ["/missing.sif", "/layer"]
        assert all(not each.authorization for each in files.log)


def test_pull_compares_a_foreign_layer_with_its_digest(tmp_path: Path) -> None:
    with FakeRegistry() as registry, FileServer(b"") as files:
        blob, reference = add_foreign(registry, [f"{files.url}/layer"])
        files.data = blob[:4] + b"\x01" + blob[5:]  # another time in the header: sound, but other bytes
        done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
    assert done.returncode == errors.DigestMismatch.exit_code
    assert not (tmp_path / "x.sif").exists()


def test_pull_names_the_address_that_lacks_a_foreign_layer(tmp_path: Path) -> None:
    with FakeRegistry() as registry, FileServer(b"") as files:
        _, reference = add_foreign(registry, [f"{files.url}/missing.sif"])
        done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
    assert done.returncode == errors.ImageNotFound.exit_code
    assert_says(done.stderr, "pull/kept-outside-registry-answer", 404)
    assert f"{files.url}/missing.sif" in done.stderr
