# SPDX-License-Identifier: BSD-3-Clause
"""Damaged and malicious layouts and archives: always a named error, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
from pathlib import Path

import pytest

from kedge.errors import CorruptImage, HostileImage, KedgeError
from kedge.image.formats.oci import open_stored as archive_module
from kedge.image.formats.oci.layout import OciLayout
from kedge.image.formats.oci.open_stored import TarArchive, open_images
from kedge.image.formats.oci.writer import write_docker_archive, write_layout, write_oci_archive
from tests.builders.oci_images import make_image, make_tar, read_layers
from tests.builders.rows import each_row

IMAGE = make_image([{"a": b"1" * 700}, {"b": b"2"}], tag="x:1")


def header(name: str, kind: bytes = b"0", size: int = 0, link: str = "") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, size, link
    return member.tobuf(tarfile.GNU_FORMAT)


def read_everything(path: Path) -> None:
    with open_images(path) as source:
        read_layers(source.image())


@pytest.mark.parametrize("docker", [False, True])
def test_archive_cut_anywhere_gives_named_error(tmp_path: Path, docker: bool) -> None:
    path = tmp_path / "a.tar"
    with path.open("w+b") as file:
        (write_docker_archive if docker else write_oci_archive)(file, [IMAGE])
    whole = path.read_bytes()
    needed = len(whole) - 3072  # what comes last (end mark, repositories) is not needed
    for length in [0, 1, 511, 512, 513, *range(600, needed, 509)]:
        path.write_bytes(whole[:length])
        with pytest.raises(KedgeError):
            read_everything(path)


@pytest.mark.parametrize("docker", [False, True])
def test_archive_with_flipped_bytes_never_escapes_with_another_error(tmp_path: Path, docker: bool) -> None:
    path = tmp_path / "a.tar"
    with path.open("w+b") as file:
        (write_docker_archive if docker else write_oci_archive)(file, [IMAGE])
    whole = path.read_bytes()
    chance = random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            read_everything(path)
        except KedgeError:
            continue


def saved(config: object, layers: object, **files: bytes) -> bytes:
    """An archive of `docker save` with this in its manifest."""
    return make_tar({"manifest.json": json.dumps([{"Config": config, "Layers": layers}]).encode(), **files})


ZEROS = "0" * 64
BAD_TARS = {
    "size beyond the end": header("index.json", size=1 << 40),
    "huge pax header": header("x", b"x", 2 << 20) + bytes(2 << 20),
    "huge long name": header("x", b"L", 2 << 20) + bytes(2 << 20),
    "pax record too long": header("x", b"x", 20) + b"99999 path=aaaaaaaaa" + bytes(492) + bytes(1024),
    "pax record of length 0": header("x", b"x", 20) + b"0 path=aaaaaaaaaaaaa" + bytes(492) + bytes(1024),
    "pax record without length": header("x", b"x", 20) + b"path=aaaaaaaaaaaaaaa" + bytes(492) + bytes(1024),
    "pax size not a number": header("x", b"x", 16) + b"16 size=-900000\n" + bytes(496) + header("a"),
    "pax size enormous": header("x", b"x", 26) + b"26 size=9999999999999999\n\n" + bytes(486) + header("a"),
    "link to itself": header("manifest.json", b"2", link="manifest.json") + bytes(1024),
    "link circle": header("manifest.json", b"2", link="b") + header("b", b"1", link="manifest.json") + bytes(1024),
    "link out of the archive": header("manifest.json", b"2", link="../../../../etc/passwd") + bytes(1024),
    "sparse member": header("manifest.json", b"S") + bytes(1024),
    "no tar at all": b"x" * 2048,
    "zeros": bytes(10240),
    "text": b"hello",
    "gzip of nothing": gzip.compress(b""),
    "gzip cut short": gzip.compress(make_tar({"a": b"1" * 10000}))[:-20],
    "gzip magic only": b"\x1f\x8b",
    "zstd magic only": b"\x28\xb5\x2f\xfd",
    "manifest is no JSON": make_tar({"manifest.json": b"{"}),
    "manifest nests deeply": make_tar({"manifest.json": b"[" * 200_000}),
    "manifest is an object": make_tar({"manifest.json": b"{}"}),
    "manifest is empty": make_tar({"manifest.json": b"[]"}),
    "manifest of numbers": make_tar({"manifest.json": b"[1,2]"}),
    "config missing": saved("x", []),
    "config is a number": saved(1, []),
    "layers is text": saved("x", "ab"),
    "layers of numbers": saved("x", [1]),
    "too many layers": saved("x", ["a"] * 5000),
    "layer missing": saved("c", ["l"], c=json.dumps({"rootfs": {"diff_ids": [f"sha256:{ZEROS}"]}}).encode()),
    "layer count differs": saved("c", ["l", "m"], c=b"{}"),
    "repositories is a list": make_tar({"repositories": b"[]"}),
    "repositories of numbers": make_tar({"repositories": b'{"a": 1}'}),
    "repositories leads out": make_tar({"repositories": b'{"a": {"1": "../../etc"}}'}),
    "repositories layer absent": make_tar({"repositories": json.dumps({"a": {"1": "0" * 64}}).encode()}),
    "parents in a circle": make_tar(
        {"repositories": b'{"a": {"1": "%s"}}' % ZEROS.encode(), f"{ZEROS}/json": b'{"parent": "%s"}' % ZEROS.encode()}
    ),
    "index is a manifest list of text": make_tar({"index.json": b'{"manifests": ["a"]}'}),
    "index is empty": make_tar({"index.json": b'{"manifests": []}'}),
    "index digest leads out": make_tar(
        {"index.json": b'{"manifests": [{"digest": "sha256:../../../../etc/passwd", "size": 1}]}'}
    ),
    "index entry is absent": make_tar(
        {"index.json": json.dumps({"manifests": [{"digest": "sha256:" + "0" * 64, "size": 1}]}).encode()}
    ),
}


@each_row("data", BAD_TARS.values(), ids=BAD_TARS.keys())
def test_archive_hostile_content_gives_named_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(KedgeError) as caught:
        read_everything(tmp_path / "a.tar")
    assert len(str(caught.value)) < 1000
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_archive_with_endless_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "_MAXIMUM_MEMBERS", 50)
    (tmp_path / "a.tar").write_bytes(header("a") * 51)
    with pytest.raises(HostileImage, match="members"):
        TarArchive.open(tmp_path / "a.tar")


def test_archive_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "_ALWAYS_ALLOWED", 1 << 20)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(32 << 20)))
    with pytest.raises(HostileImage, match="expands"):
        TarArchive.open(tmp_path / "a.tar.gz")


def test_archive_member_cut_off_later_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(make_tar({"a": b"x" * 5000}))
    archive = TarArchive.open(path)
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(CorruptImage, match="ends inside"):
        list(archive.chunks("a"))
    archive.close()


@each_row(
    "index",
    [
        *("", "[]", "{}", '{"manifests": 1}', '{"manifests": [{}]}', '{"layers": [], "config": {}}'),
        "[" * 9**5,
        "\ud800",
    ],
)
def test_layout_index_of_any_wrong_shape_gives_named_error(tmp_path: Path, index: str) -> None:
    if not (tmp_path / "layout").exists():
        write_layout(tmp_path / "layout", [IMAGE])
    (tmp_path / "layout/index.json").write_text(index, errors="surrogatepass")
    with pytest.raises(KedgeError):
        OciLayout.open(tmp_path / "layout").image()


def test_layout_index_of_many_gigabytes_is_not_read(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [IMAGE])
    with (tmp_path / "layout/index.json").open("r+b") as file:
        file.truncate(40 << 30)
    with pytest.raises(CorruptImage, match="at most"):
        OciLayout.open(tmp_path / "layout")
