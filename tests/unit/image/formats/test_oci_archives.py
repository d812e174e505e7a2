# SPDX-License-Identifier: BSD-3-Clause
"""OCI layouts, OCI archives and docker-save archives: what is written is read back, by tag and by platform."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.frozen import replace
from kedge.base.manifest import DOCKER_LAYER_TAR, DOCKER_MANIFEST, OCI_INDEX, OCI_LAYER_TAR, OCI_MANIFEST
from kedge.base.platform import Platform
from kedge.base.reference import Reference
from kedge.errors import (
    CorruptImage,
    DigestMismatch,
    FileProblem,
    ImageNotFound,
    NoMatchingPlatform,
    OutputExists,
    ProgramMissing,
    UnsupportedFormat,
)
from kedge.image.formats.oci.docker_archive import DockerArchive, save_from_daemon
from kedge.image.formats.oci.layout import OciLayout
from kedge.image.formats.oci.open_stored import open_images
from kedge.image.formats.oci.stored_image import StoredImage
from kedge.image.formats.oci.writer import convert_to_oci, write_docker_archive, write_layout, write_oci_archive
from tests.builders.oci_images import make_image, make_tar, read_layers, rewrite_index
from tests.builders.rows import each_row

ARM, AMD = Platform("arm64"), Platform("amd64")
ONE = make_image([{"a": b"1" * 3000}, {"b": b"2"}], tag="one")
TWO = make_image([{"a": b"1" * 3000}, {"c": b"3"}], tag="docker.io/library/two:2")


def write_archive(path: Path, *images: StoredImage, docker: bool = False) -> Path:
    with path.open("w+b") as file:
        (write_docker_archive if docker else write_oci_archive)(file, images)
    return path


def same_image(found: StoredImage, wanted: StoredImage) -> bool:
    return (
        found.manifest.raw == wanted.manifest.raw
        and found.config == wanted.config
        and read_layers(found) == read_layers(wanted)
        and [layer.diff_id for layer in found.layers] == [layer.diff_id for layer in wanted.layers]
    )


def test_layout_round_trip_keeps_every_byte(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [ONE, TWO])
    with OciLayout.open(tmp_path / "layout") as layout:
        assert layout.tags() == ["docker.io/library/two:2", "one"]
        assert same_image(layout.image("one"), ONE)
        assert same_image(layout.image("docker.io/library/two:2", ARM), TWO)
        assert layout.image("one").tag == "one"
        assert read_layers(layout.image("one")) == read_layers(layout.image("one"))  # may be opened again


def test_layout_shares_equal_blobs_and_has_the_specified_files(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [ONE, TWO])
    found = sorted(str(p.relative_to(tmp_path / "layout")) for p in (tmp_path / "layout").rglob("*") if p.is_file())
    blobs = {str(Digest.of(data))[7:] for i in (ONE, TWO) for data in (i.manifest.raw, i.config, *read_layers(i))}
    assert found == [*(f"blobs/sha256/{hex}" for hex in sorted(blobs)), "index.json", "oci-layout"]
    assert len(blobs) == 2 + 2 + 3
    assert json.loads((tmp_path / "layout/oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}


@pytest.mark.parametrize("wanted", ["docker.io/library/two:2", "two:2", "2", str(TWO.manifest.digest)])
def test_layout_tag_may_be_short_or_a_digest(tmp_path: Path, wanted: str) -> None:
    write_layout(tmp_path / "layout", [ONE, TWO])
    assert same_image(OciLayout.open(tmp_path / "layout").image(wanted), TWO)


def test_layout_missing_tag_lists_those_there(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [ONE, TWO])
    layout = OciLayout.open(tmp_path / "layout")
    with pytest.raises(ImageNotFound, match=r"no image 'three'; there: docker.io/library/two:2, one"):
        layout.image("three")
    with pytest.raises(ImageNotFound, match="several images"):
        layout.image()


def test_layout_single_image_needs_no_tag_and_is_for_any_platform(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [ONE])
    layout = OciLayout.open(tmp_path / "layout")
    assert same_image(layout.image(), ONE)
    assert same_image(layout.image(platform=ARM), ONE)
    assert same_image(layout.image(platform=AMD), ONE)


def test_layout_platform_is_chosen_among_entries_of_one_name(tmp_path: Path) -> None:
    amd = make_image([{"x": b"amd"}], tag="one", architecture="amd64")
    write_layout(tmp_path / "layout", [ONE, amd])
    layout = OciLayout.open(tmp_path / "layout")
    assert same_image(layout.image("one", AMD), amd)
    assert same_image(layout.image(None, ARM), ONE)
    with pytest.raises(NoMatchingPlatform, match="amd64, arm64"):
        layout.image("one", Platform("s390x"))


def test_layout_entry_need_not_say_its_platform(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [ONE])
    index = json.loads((tmp_path / "layout/index.json").read_text())
    del index["manifests"][0]["platform"]
    rewrite_index(tmp_path / "layout", index)
    layout = OciLayout.open(tmp_path / "layout")
    assert same_image(layout.image("one", ARM), ONE)
    assert same_image(layout.image("one", AMD), ONE)


def nest_index(layout: Path, depth: int) -> None:
    """Wrap index.json's entries in `depth` further indexes."""
    for level in range(depth):
        raw = (layout / "index.json").read_bytes()
        digest = Digest.of(raw)
        (layout / "blobs/sha256" / digest.hex).write_bytes(raw)
        entry = {"mediaType": OCI_INDEX, "digest": str(digest), "size": len(raw)}
        if level == depth - 1:
            entry["annotations"] = {"io.containerd.image.name": "docker.io/library/multi:7"}
        rewrite_index(layout, {"schemaVersion": 2, "manifests": [entry]})


def test_layout_nested_index_is_followed(tmp_path: Path) -> None:
    amd = make_image([{"x": b"amd"}], tag=None, architecture="amd64")
    write_layout(tmp_path / "layout", [make_image([{"x": b"arm"}], tag=None), amd])
    nest_index(tmp_path / "layout", 2)
    layout = OciLayout.open(tmp_path / "layout")
    assert layout.tags() == ["docker.io/library/multi:7"]
    assert same_image(layout.image("multi:7", AMD), amd)
    nest_index(tmp_path / "layout", 5)
    with pytest.raises(CorruptImage, match="nests indexes"):
        OciLayout.open(tmp_path / "layout").image(platform=AMD)


def test_layout_damaged_blob_is_found_while_reading(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [ONE])
    assert ONE.layers[0].digest is not None
    blob = tmp_path / "layout/blobs/sha256" / ONE.layers[0].digest.hex
    data = bytearray(blob.read_bytes())
    data[40] ^= 1
    blob.write_bytes(data)
    image = OciLayout.open(tmp_path / "layout").image()
    with pytest.raises(DigestMismatch, match="digest"):
        read_layers(image)
    blob.write_bytes(bytes(data) + b"x")
    with pytest.raises(DigestMismatch, match="longer"):
        read_layers(image)
    blob.write_bytes(data[:-1])
    with pytest.raises(DigestMismatch, match="promises"):
        read_layers(image)
    blob.unlink()
    with pytest.raises(CorruptImage, match="lacks the layer"):
        OciLayout.open(tmp_path / "layout").image()


def test_layout_write_is_whole_or_nothing(tmp_path: Path) -> None:
    wrong = replace(ONE.layers[1], open=lambda: iter([b"not these bytes"]))
    bad = StoredImage(ONE.manifest, ONE.config, (ONE.layers[0], wrong), "x")
    with pytest.raises(DigestMismatch):
        write_layout(tmp_path / "layout", [bad])
    assert list(tmp_path.iterdir()) == []
    write_layout(tmp_path / "layout", [ONE])
    with pytest.raises(OutputExists):
        write_layout(tmp_path / "layout", [ONE])
    write_layout(tmp_path / "layout/", [make_image([{"n": b""}], tag="new")], force=True)
    assert OciLayout.open(tmp_path / "layout").tags() == ["new"]
    assert [p.name for p in tmp_path.iterdir()] == ["layout"]


def test_layout_with_fifo_in_place_of_blob_does_not_hang(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [ONE])
    (tmp_path / "layout/index.json").unlink()
    os.mkfifo(tmp_path / "layout/index.json")
    with pytest.raises(UnsupportedFormat):
        OciLayout.open(tmp_path / "layout")


@each_row("docker", [False, True])
def test_archives_are_the_same_bytes_every_time(tmp_path: Path, docker: bool) -> None:
    first = write_archive(tmp_path / "a", ONE, TWO, docker=docker).read_bytes()
    assert first == write_archive(tmp_path / "b", ONE, TWO, docker=docker).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        members = archive.getmembers()
    assert all((m.mtime, m.uid, m.gid, m.uname) == (0, 0, 0, "") for m in members)
    assert len({m.name for m in members}) == len(members)


def test_docker_archive_round_trip(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.tar", ONE, TWO, docker=True)
    with open_images(path, prefer_docker=True) as archive:
        assert isinstance(archive, DockerArchive)
        assert archive.tags() == ["docker.io/library/two:2", "one:latest"]
        image = archive.image("two:2", ARM)
        assert image.config == TWO.config
        assert [layer.diff_id for layer in image.layers] == [layer.diff_id for layer in TWO.layers]
        assert read_layers(image) == [gzip.decompress(data) for data in read_layers(TWO)]
        assert image.manifest.media_type == DOCKER_MANIFEST
        assert [entry.media_type for entry in image.manifest.layers] == [DOCKER_LAYER_TAR] * 2
        assert [entry.digest for entry in image.manifest.layers] == [layer.diff_id for layer in TWO.layers]
        assert image.manifest.config.digest == Digest.of(TWO.config)


@each_row("wanted", ["one", "one:latest", "library/one", "docker.io/library/one:latest", "@0"])
def test_docker_archive_names_follow_docker_hub_defaults(tmp_path: Path, wanted: str) -> None:
    with open_images(write_archive(tmp_path / "a.tar", ONE, TWO, docker=True), prefer_docker=True) as archive:
        assert archive.image(wanted).config == ONE.config


@each_row("wanted", ["three", "@2", "@", "@99999999999999", "two", "two:1"])
def test_docker_archive_missing_name_lists_those_there(tmp_path: Path, wanted: str) -> None:
    with (
        open_images(write_archive(tmp_path / "a.tar", ONE, TWO, docker=True)) as archive,
        pytest.raises(ImageNotFound, match=r"there: docker.io/library/two:2, one:latest"),
    ):
        archive.image(wanted)


def test_docker_archive_without_name_needs_a_single_image(tmp_path: Path) -> None:
    with open_images(write_archive(tmp_path / "a.tar", ONE, docker=True)) as archive:
        assert archive.image().config == ONE.config
        assert archive.image(platform=AMD).config == ONE.config
    with (
        open_images(write_archive(tmp_path / "b.tar", ONE, TWO, docker=True)) as archive,
        pytest.raises(ImageNotFound, match="several"),
    ):
        archive.image()


@each_row("docker", [False, True])
def test_archive_compressed_is_read_too(tmp_path: Path, docker: bool) -> None:
    plain = write_archive(tmp_path / "a.tar", ONE, docker=docker)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
    with open_images(tmp_path / "a.tar.gz") as archive:
        assert archive.image().config == ONE.config
        assert len(read_layers(archive.image())) == 2


def docker_save(image: StoredImage, *, layers: list[str], links: dict[str, str] | None = None) -> dict[str, bytes]:
    """The members of an archive with the given layer names (those that are links have no bytes of their own)."""
    members = {name: data for name, data in zip(layers, read_layers(image), strict=True) if name not in (links or {})}
    config = f"{Digest.of(image.config).hex}.json"
    entry = {"Config": config, "RepoTags": ["x:1"], "Layers": layers}
    return {config: image.config, "manifest.json": json.dumps([entry]).encode(), **members}


def test_docker_archive_layers_may_be_links_inside_the_tar(tmp_path: Path) -> None:
    image = make_image([{"a": b"1"}, {"a": b"1"}], compressed=False)
    names, links = ["aa/layer.tar", "bb/layer.tar"], {"bb/layer.tar": "../aa/layer.tar"}
    (tmp_path / "a.tar").write_bytes(make_tar(docker_save(image, layers=names, links=links), links))
    with open_images(tmp_path / "a.tar") as archive:
        assert read_layers(archive.image("x:1")) == read_layers(image)


def test_docker_archive_layers_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(make_tar(docker_save(ONE, layers=["1.tar", "2.tar"])))
    with open_images(tmp_path / "a.tar") as archive:
        image = archive.image()
        assert read_layers(image) == read_layers(ONE)
        assert [layer.digest for layer in image.layers] == [layer.digest for layer in ONE.layers]


def test_docker_archive_is_read_from_pax_and_long_names(tmp_path: Path) -> None:
    image = make_image([{"a": b"1"}], compressed=False)
    name = "d" * 90 + "/" + "e" * 150 + "/layer.tar"
    for pax in (False, True):
        (tmp_path / "a.tar").write_bytes(make_tar(docker_save(image, layers=[name]), pax=pax))
        with open_images(tmp_path / "a.tar") as archive:
            assert read_layers(archive.image()) == read_layers(image)


def test_archive_that_is_both_kinds_follows_the_wish(tmp_path: Path) -> None:
    image = make_image([{"a": b"1"}], tag="both", compressed=False)
    write_layout(tmp_path / "layout", [image])
    members = {
        str(p.relative_to(tmp_path / "layout")): p.read_bytes() for p in (tmp_path / "layout").rglob("*") if p.is_file()
    }
    blobs = f"blobs/sha256/{Digest.of(read_layers(image)[0]).hex}"
    entry = {"Config": f"blobs/sha256/{Digest.of(image.config).hex}", "RepoTags": ["both:1"], "Layers": [blobs]}
    members["manifest.json"] = json.dumps([entry]).encode()
    (tmp_path / "a.tar").write_bytes(make_tar(members))
    with open_images(tmp_path / "a.tar") as archive:
        assert same_image(archive.image("both"), image)
    with open_images(tmp_path / "a.tar", prefer_docker=True) as archive:
        assert archive.tags() == ["both:1"]
        assert read_layers(archive.image("both:1")) == read_layers(image)


def test_docker_archive_of_the_oldest_kind(tmp_path: Path) -> None:
    lower, upper = make_tar({"a": b"1"}), make_tar({"b": b"2"})
    first, second = "1" * 64, "2" * 64
    members = {
        "repositories": json.dumps({"old": {"1": second}}).encode(),
        f"{first}/json": json.dumps({"id": first}).encode(),
        f"{first}/layer.tar": lower,
        f"{second}/json": json.dumps({"parent": first, "config": {"Cmd": ["x"]}, "architecture": "arm64"}).encode(),
        f"{second}/layer.tar": upper,
    }
    (tmp_path / "a.tar").write_bytes(make_tar(members))
    with open_images(tmp_path / "a.tar") as archive:
        image = archive.image("old:1", ARM)
        assert read_layers(image) == [lower, upper]
        assert image.parsed_config().command == ("x",)
        assert image.layers[0].diff_id == Digest.of(lower)


def test_unpacked_docker_archive_folder_is_read(tmp_path: Path) -> None:
    for name, data in docker_save(ONE, layers=["1.tar", "2.tar"]).items():
        (tmp_path / name).write_bytes(data)
    with open_images(tmp_path) as archive:
        assert read_layers(archive.image()) == read_layers(ONE)


def test_convert_to_oci_changes_media_types_only(tmp_path: Path) -> None:
    with open_images(write_archive(tmp_path / "a.tar", ONE, docker=True)) as archive:
        converted = convert_to_oci(archive.image())
        assert converted.manifest.media_type == OCI_MANIFEST
        assert [entry.media_type for entry in converted.manifest.layers] == [OCI_LAYER_TAR] * 2
        assert converted.config == ONE.config
        write_layout(tmp_path / "layout", [converted])
    assert read_layers(OciLayout.open(tmp_path / "layout").image()) == [gzip.decompress(d) for d in read_layers(ONE)]
    assert convert_to_oci(ONE) is ONE


def test_open_images_missing_path_and_wrong_kinds(tmp_path: Path) -> None:
    with pytest.raises(FileProblem):
        open_images(tmp_path / "nothing")
    with pytest.raises(UnsupportedFormat, match=r"index\.json"):
        open_images(tmp_path)
    (tmp_path / "root.tar").write_bytes(make_tar({"etc/passwd": b"root"}))
    with pytest.raises(UnsupportedFormat, match="neither"):
        open_images(tmp_path / "root.tar")


def fake_engine(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_save_from_daemon_streams_the_engines_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = write_archive(tmp_path / "saved.tar", ONE, docker=True)
    fake_engine(tmp_path, "docker", f'[ "$*" = "save -- one:latest" ] || exit 9; cat {saved}', monkeypatch)
    with (tmp_path / "out.tar").open("w+b") as file:
        save_from_daemon(Reference.parse("docker-daemon:one"), file)
    assert (tmp_path / "out.tar").read_bytes() == saved.read_bytes()


def test_save_from_daemon_explains_missing_image_and_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine(tmp_path, "podman", "echo 'Error: one: No such image' >&2; exit 125", monkeypatch)
    with (tmp_path / "out.tar").open("w+b") as file:
        with pytest.raises(ImageNotFound, match="podman has no image 'one:1'") as caught:
            save_from_daemon(Reference.parse("podman://one:1"), file)
        assert "podman images" in (caught.value.hint or "")
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
        with pytest.raises(ProgramMissing) as missing:
            save_from_daemon(Reference.parse("podman://one:1"), file)
        assert "docker save" in (missing.value.hint or "")
