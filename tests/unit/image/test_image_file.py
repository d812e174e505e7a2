# SPDX-License-Identifier: BSD-3-Clause
"""What an image file is, from a read or two: every kind, every damage one clear error, and the same file one name."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from kedge.errors import CorruptImage, FileProblem, KedgeError, NoMatchingPlatform, UnsupportedFormat
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.layout import DataType, FileSystem, PartitionType, pack_partition_extra
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.sif.writer import SifBuilder
from kedge.image.image_file import ImageFile, compare_machine, identify, make_absolute
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path
from tests.builders.squashfs_images import write_image
from tests.hostile.test_sif_corpus import CORPUS
from tests.requirements import REPOSITORY


@pytest.fixture(scope="module")
def squashfs() -> bytes:
    return write_image()


def make_sif(squashfs: bytes, kind: int = FileSystem.SQUASHFS, overlay: bytes = b"", config: bytes = b"") -> bytes:
    file = io.BytesIO()
    builder = SifBuilder(file, architecture="arm64", created=1_600_000_000)
    if config:
        builder.add(DataObject(DataType.GENERIC_JSON, config, "oci-config.json"))
    extra = pack_partition_extra(kind, PartitionType.PRIMARY_SYSTEM, "arm64")
    builder.add(DataObject(DataType.PARTITION, squashfs, extra=extra))
    if overlay:
        extra = pack_partition_extra(FileSystem.EXT3, PartitionType.OVERLAY, "arm64")
        builder.add(DataObject(DataType.PARTITION, overlay, extra=extra))
    builder.finish()
    return file.getvalue()


def write(folder: Path, data: bytes, name: str = "image.sif") -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def make_ext3() -> bytes:
    return bytes(1080) + b"\x53\xef" + bytes(4000)


def test_identify_sif_finds_what_the_reader_finds(tmp_path: Path, squashfs: bytes) -> None:
    path = write(tmp_path, make_sif(squashfs, overlay=make_ext3(), config=b'{"Env":[]}'))
    image = identify(path)
    with Path(path).open("rb") as file:
        reader = SifReader(file, path)
        partition = reader.root_partition()
    assert (image.kind, image.file_system, image.machine) == ("sif", "squashfs", "aarch64")
    assert (image.offset, image.size) == (partition.offset, partition.size)
    assert image.read_config() == b'{"Env":[]}'
    assert [(size, kind) for _, size, kind in image.overlays] == [(len(make_ext3()), "ext3")]
    assert image.path == path


def test_identify_real_sif_of_apptainer() -> None:
    image = identify(str(fixture_path("busybox_arm64.sif")))
    assert (image.kind, image.machine, image.offset) == ("sif", "aarch64", 45056)


@pytest.mark.parametrize("line", [b"", b"#!/usr/bin/env run-singularity\n"])
def test_identify_file_systems_with_and_without_a_launch_line(tmp_path: Path, squashfs: bytes, line: bytes) -> None:
    for kind, data in (("squashfs", squashfs), ("ext3", make_ext3())):
        image = identify(write(tmp_path, line + data, f"old.{kind}"))
        assert (image.kind, image.file_system, image.offset, image.machine) == (kind, kind, len(line), "")
        assert image.size == len(data)


def test_identify_folder_and_refuses_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "root/bin").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    assert identify(str(tmp_path / "root")).kind == "folder"
    with pytest.raises(FileProblem, match="empty directory"):
        identify(str(tmp_path / "empty"))
    (tmp_path / "root/oci-layout").write_text("{}")
    with pytest.raises(FileProblem, match="OCI layout") as caught:
        identify(str(tmp_path / "root"))
    assert f"oci:{tmp_path}/root" in str(caught.value.hint)


def test_state_is_a_file_name_and_differs_when_the_content_may(tmp_path: Path, squashfs: bytes) -> None:
    path = write(tmp_path, make_sif(squashfs))
    first = identify(path).state
    assert first == identify(path).state
    assert "/" not in first
    assert len(first) < 200
    before = Path(path).stat()
    with Path(path).open("r+b") as file:  # as a program does that does not want to be noticed
        file.write(file.read(1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = identify(path).state
    assert second != first
    Path(path).read_bytes()
    assert identify(path).state == second, "reading it is no change"
    other = write(tmp_path, make_sif(squashfs), "copy.sif")
    os.utime(other, ns=(1, 1_600_000_000_000_000_001))
    assert identify(other).state != second, "another file is not known to be the same"


def test_compare_machine_names_both(tmp_path: Path, squashfs: bytes) -> None:
    image = identify(write(tmp_path, make_sif(squashfs)))
    compare_machine(image, "aarch64")
    if not Path("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists():
        with pytest.raises(NoMatchingPlatform, match=r"aarch64.*x86_64") as caught:
            compare_machine(image, "x86_64")
        assert "x86_64" in str(caught.value.hint)
    old = ImageFile("/x", "sif")
    old.machine = "i686"
    compare_machine(old, "x86_64")


def test_identify_refuses_encrypted_images(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormat, match="encrypted"):
        identify(write(tmp_path, make_sif(b"LUKS" + bytes(4092), FileSystem.ENCRYPTED_SQUASHFS)))


def test_identify_refuses_truncated_files(tmp_path: Path, squashfs: bytes) -> None:
    whole = make_sif(squashfs)
    for length in (len(whole) - 4097, 40_000, 4096, 200, 130):
        with pytest.raises(CorruptImage, match=r"image\.sif"):
            identify(write(tmp_path, whole[:length]))
    with pytest.raises(CorruptImage, match=r"cut\.sqsh"):
        identify(write(tmp_path, squashfs[:5000], "cut.sqsh"))


def test_identify_names_other_kinds_of_files_with_a_remedy(tmp_path: Path) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("manifest.json"))
    for data, said in (
        *((tar.getvalue(), "docker-archive:"), (b"hello\n", "docker://"), (b"", "fetch")),
        *((b"<html>not found</html>", "fetch"), (bytes(range(256)) * 20, "docker://")),
    ):
        with pytest.raises(UnsupportedFormat, match=r"image\.sif") as caught:
            identify(write(tmp_path, data))
        assert said in str(caught.value.hint)


@each_row(
    ("name", "hint"),
    [
        ("dockr://ubuntu", "docker://ubuntu"),
        ("docker:ubuntu", "docker://ubuntu"),
        ("ubuntu:22.04", "docker://ubuntu:22.04"),
        ("no/such/file.sif", "spelling"),
        ("a\0b", "NUL"),
    ],
)
def test_identify_proposes_what_was_meant(name: str, hint: str) -> None:
    with pytest.raises(FileProblem) as caught:
        identify(name)
    assert hint in f"{caught.value.message} {caught.value.hint}"


def test_identify_does_not_wait_for_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileProblem, match="neither"):
        identify(str(tmp_path / "pipe"))


def test_path_keeps_the_name_of_a_link(tmp_path: Path, squashfs: bytes) -> None:
    write(tmp_path, squashfs, "real.sqsh")
    (tmp_path / "there").mkdir()
    (tmp_path / "there/name.sqsh").symlink_to("../real.sqsh")
    assert identify(f"{tmp_path}/there/name.sqsh").path == f"{tmp_path}/there/name.sqsh"
    (tmp_path / "away").symlink_to("there")
    assert make_absolute(f"{tmp_path}/away/../real.sqsh") == f"{tmp_path}/real.sqsh"


def test_identify_survives_the_hostile_corpus(tmp_path: Path) -> None:
    began = time.process_time()
    path = str(tmp_path / "bad.sif")
    unnamed: list[str] = []
    for name, data in CORPUS:
        Path(path).write_bytes(data)
        try:
            image = identify(path)
        except KedgeError as problem:
            unnamed += [name] if "bad.sif" not in problem.message else []
            continue
        assert 0 < image.offset < image.offset + image.size <= len(data), name
        assert all(offset + size <= len(data) for offset, size, _ in image.overlays), name
        assert image.config_offset + image.config_size <= len(data), name
    assert not unnamed, "an error must name the file"
    assert time.process_time() - began < len(CORPUS) * 0.05


def test_identify_imports_nothing_heavy(tmp_path: Path, squashfs: bytes) -> None:
    path = write(tmp_path, make_sif(squashfs))
    code = (
        f"import os, sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r})\n"
        "from kedge.image import image_file, node_cache\n"
        f"node_cache.find_unpacked(image_file.identify({path!r}), os.environ)\n"
        "heavy = ('re', 'typing', 'dataclasses', 'enum', 'pathlib', 'json', 'kedge.errors')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-SI", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
