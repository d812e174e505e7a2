# SPDX-License-Identifier: BSD-3-Clause
"""`kedge push` against an in-process registry: what is sent and what is not, from every form, and each refusal."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge import errors
from kedge.base.manifest import DOCKER_CONFIG, DOCKER_LAYER_GZIP, DOCKER_MANIFEST
from kedge.image.formats.oci.stored_image import StoredLayer
from kedge.image.push import open_layer
from kedge.image.sources.open_local import open_sif
from tests.builders import layers as build
from tests.builders.images import add_rich_image, hash_file, make_config, noise, rich_layers
from tests.builders.warm_kedge import kedge
from tests.fakes.http_server import Reply
from tests.fakes.registry import FakeRegistry, Policy


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rich image in every form, in one directory."""
    folder = tmp_path_factory.mktemp("images")
    with FakeRegistry() as registry:
        add_rich_image(registry)
        for name in ("x.sif", "x.sqsh", "box/", "oci:lay:1", "x.oci.tar", "docker-archive:x.tar:team/rich:1"):
            kedge("pull", name, f"docker://{registry.host}/team/rich:1", cache=folder / "cache", cwd=folder)
    return folder


def read_config(registry: FakeRegistry, repository: str, tag: str = "1") -> dict[str, object]:
    manifest = json.loads(registry.manifests[repository, tag][0])
    document: dict[str, object] = json.loads(registry.blobs[manifest["config"]["digest"]])
    return document


def sent_bytes(registry: FakeRegistry) -> int:
    return sum(len(each.body) for each in registry.server.seen("^(PATCH|PUT) .*/blobs/"))


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as served:
        yield served


@pytest.mark.parametrize("source", ["oci:lay:1", "lay", "x.oci.tar"])
def test_push_layered_sources_keep_their_digest(images, tmp_path, source, registry):
    digest = add_rich_image(registry, "reference")
    done = kedge("push", source, f"docker://{registry.host}/new/a:2", cache=tmp_path / "c", cwd=images)
    assert done.stdout.strip() == digest
    assert registry.manifests["new/a", "2"] == registry.manifests["reference", "1"]


def test_push_compresses_the_layers_of_a_docker_archive(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    for cache in ("first", "second"):
        target = f"docker://{registry.host}/new/{cache}:1"
        kedge("push", "docker-archive:x.tar", target, cache=tmp_path / cache, cwd=images)
    manifest = json.loads(registry.manifests["new/first", "1"][0])
    assert registry.manifests["new/second", "1"] == registry.manifests["new/first", "1"]
    tars = rich_layers()
    assert [layer["mediaType"] for layer in manifest["layers"]] == [DOCKER_LAYER_GZIP] * len(tars)
    for layer, tar in zip(manifest["layers"], tars, strict=True):
        blob = registry.blobs[layer["digest"]]
        assert (len(blob), gzip.decompress(blob)) == (layer["size"], tar)
    assert sum(layer["size"] for layer in manifest["layers"]) < sum(map(len, tars)) // 1.2
    kedge("pull", tmp_path / "back.sif", target, cache=tmp_path / "third")


def test_push_docker_schema_2_stays_as_it_is(tmp_path: Path, registry: FakeRegistry) -> None:
    tars = rich_layers()
    layers = [registry.add_blob("team/old", build.compress(tar), DOCKER_LAYER_GZIP).as_json() for tar in tars]
    config = registry.add_blob("team/old", make_config(tars), DOCKER_CONFIG).as_json()
    document = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": config, "layers": layers}
    registry.add_manifest("team/old", "1", json.dumps(document, indent=3).encode(), DOCKER_MANIFEST)
    kedge("pull", "oci:lay", f"docker://{registry.host}/team/old:1", cache=tmp_path / "c", cwd=tmp_path)
    kedge("push", "oci:lay", f"docker://{registry.host}/team/new:1", cache=tmp_path / "c", cwd=tmp_path)
    assert registry.manifests["team/new", "1"] == registry.manifests["team/old", "1"]


@pytest.mark.parametrize("source", ["x.sif", "x.sqsh", "box", "docker-archive:x.tar"])
def test_push_again_sends_nothing_and_the_config_survives(images, tmp_path, source, registry):
    target = f"docker://{registry.host}/new/a:1"
    first = kedge("push", "--json", source, target, cache=tmp_path / "c", cwd=images)
    assert json.loads(first.stdout)["sent"] > 1_000_000
    section = read_config(registry, "new/a")["config"]
    assert section["Env"] == ["PATH=/bin", "GREETING=hello world"]
    assert section["Entrypoint"] == ["/bin/printf", "[%s]"]
    assert section["Cmd"] == ["default"]
    assert section["Labels"]["maker"] == "kedge tests"
    registry.server.log.clear()
    second = kedge("push", "--json", source, target, cache=tmp_path / "other", cwd=images)
    assert not registry.server.seen("^(POST|PATCH) ")
    assert [each.path for each in registry.server.seen("^PUT ")] == ["/v2/new/a/manifests/1"]
    assert json.loads(second.stdout)["digest"] == json.loads(first.stdout)["digest"]
    assert json.loads(second.stdout)["sent"] == 0


def test_push_of_a_sif_comes_back_with_its_files(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    kedge("push", images / "x.sif", f"docker://{registry.host}/new/a:1", cache=tmp_path / "c")
    kedge("pull", tmp_path / "y.sif", f"docker://{registry.host}/new/a:1", cache=tmp_path / "c")
    image = open_sif(tmp_path / "y.sif")
    data = image.root.children[b"data"].children
    assert b"".join(image.source.chunks(data[b"big"])) == noise(700_001, "big")
    assert data[b"twin"] is data[b"owned"]
    assert (data[b"owned"].uid, data[b"setuid"].mode) == (1000, 0o4755)
    assert dict(data[b"capable"].xattrs)[b"user.note"] == b"hello"
    image.close()


def test_push_mounts_what_another_repository_has(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    kedge("push", "oci:lay", f"docker://{registry.host}/one/a:1", cache=tmp_path / "c", cwd=images)
    before = sent_bytes(registry)
    kedge("push", "oci:lay", f"docker://{registry.host}/two/b:1", cache=tmp_path / "c", cwd=images)
    mounts = [each.query["from"] for each in registry.server.seen("POST") if "mount" in each.query]
    assert mounts == [["one/a"]] * 3
    assert sent_bytes(registry) - before < 2000  # the config alone
    registry.policy.can_mount = False  # a registry may say no: then the bytes go
    kedge("push", "oci:lay", f"docker://{registry.host}/three/c:1", cache=tmp_path / "c", cwd=images)
    assert registry.repository_blobs["three/c"] == registry.repository_blobs["one/a"]


def test_push_dry_run_asks_and_sends_nothing(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    target = f"docker://{registry.host}/new/a:1"
    dry = json.loads(kedge("push", "--dry-run", "--json", images / "x.sif", target, cache=tmp_path / "c").stdout)
    assert {each.method for each in registry.server.log} == {"HEAD"}
    assert [blob["state"] for blob in dry["blobs"]] == ["to send", "to send"]
    done = json.loads(kedge("push", "--json", images / "x.sif", target, cache=tmp_path / "c").stdout)
    assert (done["digest"], done["sent"]) == (dry["digest"], dry["sent"])
    text = kedge("push", "--dry-run", images / "x.sif", target, cache=tmp_path / "c").stdout
    assert text.count("there") == 3


def test_push_without_tag_is_latest_and_unsigned_is_fine(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    kedge("push", "-U", images / "x.sif", f"oras://{registry.host}/new/a", cache=tmp_path / "c")
    assert ("new/a", "latest") in registry.manifests


def test_push_oras_gives_the_same_file_back(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    kedge("push", images / "x.sif", f"oras://{registry.host}/new/a:1", cache=tmp_path / "c")
    kedge("pull", tmp_path / "y.sif", f"oras://{registry.host}/new/a:1", cache=tmp_path / "c")
    manifest = json.loads(registry.manifests["new/a", "1"][0])
    registry.server.log.clear()
    again = kedge("push", "--json", images / "x.sif", f"oras://{registry.host}/new/a:1", cache=tmp_path / "c")
    assert sent_bytes(registry) == 0
    assert json.loads(again.stdout)["sent"] == 0
    assert hash_file(tmp_path / "y.sif") == hash_file(images / "x.sif")
    assert os.access(tmp_path / "y.sif", os.X_OK)
    assert manifest["layers"][0]["annotations"]["org.opencontainers.image.title"] == "x.sif"


def test_push_goes_on_after_a_broken_connection(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    """From a stream that cannot go back: the archive is read again up to the place where it broke."""
    digest = add_rich_image(registry, "reference")
    registry.server.fail("^PATCH", times=2, cut_request_at=300_000)
    done = kedge("push", "x.oci.tar", f"docker://{registry.host}/new/a:1", cache=tmp_path / "c", cwd=images)
    assert done.stdout.strip() == digest


def test_push_leaves_no_temporary_files(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    (tmp_path / "tmp").mkdir()
    for source in ("x.sif", "oci:lay", "docker-archive:x.tar", "host:true"):
        words = ("push", "--tmpdir", tmp_path / "tmp", source, f"docker://{registry.host}/new/a:1")
        kedge(*words, cache=tmp_path / "c", cwd=images)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_push_of_damaged_layers_never_shows_a_manifest(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    kedge("convert", "oci:lay", f"oci:{tmp_path / 'bad'}", cache=tmp_path / "c", cwd=images)
    largest = max((tmp_path / "bad/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    target = f"docker://{registry.host}/new/a:1"
    done = kedge("push", f"oci:{tmp_path / 'bad'}", target, cache=tmp_path / "c", check=False)
    assert ("new/a", "1") not in registry.manifests
    assert done.returncode == errors.DigestMismatch.exit_code


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("x.sif", "host:sh", (errors.UsageError, "cannot push to")),
        ("x.sif", "y.sif", (errors.UsageError, "cannot push to")),
        ("x.sif", "docker://HOST/a@sha256:" + "0" * 64, (errors.UsageError, "cannot push to a digest")),
        ("docker://HOST/a:1", "docker://HOST/b:1", (errors.ImageNotFound, "the cache has no image called 127.0.0.1")),
        ("instance://x", "docker://HOST/b:1", (errors.UsageError, "running container")),
        ("missing.sif", "docker://HOST/a:1", (errors.FileProblem, "missing.sif does not exist")),
        ("missing.sif", "oras://HOST/a:1", (errors.FileProblem, "missing.sif")),
        ("box", "oras://HOST/a:1", (errors.UsageError, "which takes SIF files only")),
        ("oci:lay", "oras://HOST/a:1", (errors.UsageError, "which takes SIF files only")),
        ("x.sqsh", "oras://HOST/a:1", (errors.UnsupportedFormat, "bare SquashFS")),
        ("page.sif", "oras://HOST/a:1", (errors.UnsupportedFormat, "web page")),
        ("page.sif", "docker://HOST/a:1", (errors.UnsupportedFormat, "web page")),
    ],
)
def test_push_wrong_things_are_one_clear_error(images, tmp_path, registry, *, source, target, expected):
    (images / "page.sif").write_text("<html><body>log in first</body></html>")
    target = target.replace("HOST", registry.host)
    source = source.replace("HOST", registry.host)
    done = kedge("push", source, target, cache=tmp_path / "c", cwd=images, check=False)
    assert not registry.server.seen("^(POST|PUT|PATCH)")
    assert done.returncode == expected[0].exit_code, done.stderr
    assert expected[1] in done.stderr
    assert "Traceback" not in done.stderr


def test_push_without_login_is_refused_before_the_work(images: Path, tmp_path: Path) -> None:
    with FakeRegistry(Policy(auth="basic", users={"me": "secret-word"}, private=frozenset({"new/a"}))) as registry:
        target = f"docker://{registry.host}/new/a:1"
        refused = kedge("push", images / "x.sif", target, cache=tmp_path / "c", check=False)
        assert refused.returncode == errors.AuthenticationFailed.exit_code
        assert "kedge registry login" in refused.stderr
        login = {"KEDGE_DOCKER_USERNAME": "me", "KEDGE_DOCKER_PASSWORD": "secret-word"}
        done = kedge("push", images / "x.sif", target, cache=tmp_path / "c", environment=login)
        assert ("new/a", "1") in registry.manifests
    assert "secret-word" not in done.stdout + done.stderr


def test_push_to_a_read_only_registry_says_so(images: Path, tmp_path: Path, registry: FakeRegistry) -> None:
    body = b'{"errors":[{"code":"UNSUPPORTED","message":"The operation is unsupported."}]}'
    registry.server.fail("^(POST|PUT|PATCH)", times=99, reply=Reply(405, body))
    done = kedge("push", "oci:lay", f"docker://{registry.host}/a:1", cache=tmp_path / "c", cwd=images, check=False)
    assert done.returncode == errors.AccessDenied.exit_code
    assert "does not accept pushes" in done.stderr


def test_layer_file_reads_and_goes_back() -> None:
    pieces = [b"abc", b"", b"defgh", b"ij"]
    with open_layer(StoredLayer("x", None, None, 10, lambda: iter(pieces))) as file:
        assert file.read(4) == b"abc"  # a short read is what files may give
        assert file.seek(6) == 6
        assert (file.read(1), file.read(9), file.read(9), file.read(1)) == (b"g", b"h", b"ij", b"")
        assert file.seek(99) == 10
