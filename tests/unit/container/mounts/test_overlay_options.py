# SPDX-License-Identifier: BSD-3-Clause
"""Which layers lie above an image: what --overlay, --writable and --writable-tmpfs mean, refuse, and remember."""

from __future__ import annotations

import os

import pytest

from kedge.container.facts import HostFacts
from kedge.container.mounts import overlay_options
from kedge.container.mounts.ext3 import ExtImage, choose_options
from kedge.container.mounts.overlay_base import read_base, remember_base
from kedge.container.mounts.overlay_options import OverlayLayer, choose_tmpfs_size, plan_overlays
from kedge.container.options import RunOptions
from kedge.errors import FileProblem, KedgeError, UnsupportedFormat, UsageError
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object
from kedge.image.formats.sif.layout import PARTITION_EXTRA, DataType, FileSystem, PartitionType
from kedge.system.libc import LUSTRE_SUPER_MAGIC, NFS_SUPER_MAGIC
from kedge.system.views import TableView
from tests.builders.ordinary_user import as_ordinary_user
from tests.builders.rows import each_row
from tests.builders.sif import build_sif
from tests.builders.squashfs_images import write_image


@pytest.fixture
def host(tmp_path):
    return HostFacts(view=TableView({}), environ={}, cwd=str(tmp_path), memory=8 << 30)


def plan(host, *overlay, image_file="", **options):
    return plan_overlays(RunOptions(overlay=list(overlay), **options), host, str(image_file) if image_file else "")


def make_ext(path):
    image = bytearray(65536)
    image[0x438:0x43A] = b"\x53\xef"
    path.write_bytes(image)
    return path


def make_sif(path, *overlays):
    """A SIF with a root file system and overlay partitions of these file systems."""
    root = PARTITION_EXTRA.pack(FileSystem.SQUASHFS, PartitionType.PRIMARY_SYSTEM, b"02\0")
    objects = [(DataType.PARTITION, write_image(), root)]
    for kind in overlays:
        content = write_image() if kind == FileSystem.SQUASHFS else bytes(0x438) + b"\x53\xef" + bytes(3000)
        objects.append((DataType.PARTITION, content, PARTITION_EXTRA.pack(kind, PartitionType.OVERLAY, b"02\0")))
    path.write_bytes(build_sif(objects))
    return path


def test_a_folder_is_writable_unless_ro_is_said(host, tmp_path) -> None:
    assert plan(host) == []
    (tmp_path / "o").mkdir()
    assert plan(host, "o") == [OverlayLayer(f"{tmp_path}/o", "folder", writable=True, folder="upper")]
    assert plan(host, "o:rw")[0].writable
    assert plan(host, "o:ro") == [OverlayLayer(f"{tmp_path}/o", "folder")]
    assert not list((tmp_path / "o").iterdir()), "planning changes nothing"


def test_a_readonly_folder_means_its_upper_where_it_has_one(host, tmp_path):
    (tmp_path / "o/upper").mkdir(parents=True)
    assert plan(host, "o:ro") == [OverlayLayer(f"{tmp_path}/o", "folder", folder="upper")]


def test_images_are_told_by_what_is_in_them_and_squashfs_is_readonly(host, tmp_path) -> None:
    make_ext(tmp_path / "env.img")
    (tmp_path / "data.sqf").write_bytes(write_image())
    first, second = plan(host, "env.img:ro", "data.sqf:ro")
    assert (first.kind, first.folder, first.writable) == ("ext3", "upper", False)
    assert (second.kind, second.folder, second.writable) == ("squashfs", "", False)
    assert second.warning == ""
    (tmp_path / "data.sqf").write_bytes(write_image())
    (layer,) = plan(host, "data.sqf")
    assert not layer.writable
    assert "read-only" in layer.warning
    with pytest.raises(FileProblem, match="SquashFS is read-only"):
        plan(host, "data.sqf:rw")


def test_the_writable_layer_is_the_highest_wherever_it_is_named(host, tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
    assert [layer.path[-1] for layer in plan(host, "a:ro", "b", "c:ro")] == ["a", "c", "b"]


def test_the_text_of_overlays_may_have_commas_and_colons(host, tmp_path) -> None:
    for name in ("a", "b", "c,d"):
        (tmp_path / name).mkdir()
    assert [layer.path for layer in plan(host, "a:ro,b:ro")] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert [layer.path for layer in plan(host, "c,d:ro")] == [f"{tmp_path}/c,d"]
    (tmp_path / "12:30").mkdir()
    assert plan(host, "12:30:ro")[0].path == f"{tmp_path}/12:30"
    assert plan(host, "12:30")[0].writable


def test_two_writable_overlays_are_refused_with_the_remedy(host, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match="only one overlay can be writable") as caught:
        plan(host, "a", "b")
    assert f"--overlay {tmp_path}/a:ro" in str(caught.value.hint)


def test_writable_tmpfs_and_a_writable_overlay_are_refused_and_a_readonly_one_is_not(host, tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match="--writable-tmpfs"):
        plan(host, "a", writable_tmpfs=True)
    assert len(plan(host, "a:ro", writable_tmpfs=True)) == 1


def test_writable_and_overlay_are_refused(host, tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match="--writable and --overlay"):
        plan(host, "a:ro", writable=True)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        *(("missing", FileProblem, "No such file"), ("missing:ro", FileProblem, "No such file")),
        *(("text", UnsupportedFormat, "text"), ("pipe", FileProblem, "neither a file nor a directory")),
        ("folder:rx", UsageError, "'rx' is not a mode"),
        ("blocked", FileProblem, "is not a directory, and an overlay needs one"),
        ("plain.sif", UnsupportedFormat, "no overlay partition"),
    ],
)
def test_what_cannot_be_an_overlay_is_refused_in_one_sentence_with_a_remedy(host, tmp_path, text, kind, words):
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked/work").write_text("")
    os.mkfifo(tmp_path / "pipe")
    make_sif(tmp_path / "plain.sif")
    with pytest.raises(kind, match=words) as caught:
        plan(host, text)
    assert isinstance(caught.value, KedgeError)
    assert caught.value.hint


@as_ordinary_user
def test_a_folder_that_we_may_not_write_to_is_refused(host, tmp_path):
    (tmp_path / "o").mkdir(mode=0o500)
    with pytest.raises(FileProblem, match="no write permission"):
        plan(host, "o")


@as_ordinary_user
def test_an_image_that_we_may_not_write_to_is_used_readonly_with_a_warning(host, tmp_path):
    make_ext(tmp_path / "env.img").chmod(0o444)
    (layer,) = plan(host, "env.img")
    assert not layer.writable
    assert "no write permission" in layer.warning


@pytest.mark.parametrize(("magic", "name"), [(NFS_SUPER_MAGIC, "NFS"), (LUSTRE_SUPER_MAGIC, "Lustre")])
def test_a_folder_on_a_network_file_system_needs_fuse_overlayfs_for_writing_only(
    host, tmp_path, monkeypatch, magic, name
):
    monkeypatch.setattr(overlay_options, "file_system_type", lambda path: magic)
    monkeypatch.setattr(overlay_options, "find_program", lambda wanted: f"/usr/bin/{wanted}")
    (tmp_path / "o").mkdir()
    assert plan(host, "o")[0].writable
    monkeypatch.setattr(overlay_options, "find_program", lambda wanted: "")
    with pytest.raises(FileProblem, match=name) as caught:
        plan(host, "o")
    assert "fuse-overlayfs" in str(caught.value.hint)
    assert not plan(host, "o:ro")[0].writable


def test_a_folder_on_fat_is_refused(host, tmp_path, monkeypatch):
    monkeypatch.setattr(overlay_options, "file_system_type", lambda path: 0x4D44)
    (tmp_path / "o").mkdir()
    with pytest.raises(FileProblem, match="FAT"):
        plan(host, "o")


def test_the_partitions_of_a_sif_are_layers_with_their_place(host, tmp_path) -> None:
    path = make_sif(tmp_path / "a.sif", FileSystem.SQUASHFS, FileSystem.EXT3)
    first, second = plan(host, "a.sif:ro")
    assert (first.kind, second.kind) == ("squashfs", "ext3")
    with path.open("rb") as file:
        file.seek(second.offset + 0x438)
        assert file.read(2) == b"\x53\xef"
    assert plan(host, "a.sif")[-1].writable


def test_a_partition_of_another_group_does_not_belong_to_the_image(host, tmp_path):
    image = make_sif(tmp_path / "a.sif", FileSystem.EXT3)
    extra = PARTITION_EXTRA.pack(FileSystem.EXT3, PartitionType.OVERLAY, b"02\0")
    content = bytes(0x438) + b"\x53\xef" + bytes(3000)
    append_object(image, DataObject(DataType.PARTITION, content, group=2, extra=extra))
    assert len(plan(host, image_file=image)) == 1


def test_the_images_own_partitions_lie_below_the_overlays_and_are_written_with_writable_only(host, tmp_path):
    image = make_sif(tmp_path / "a.sif", FileSystem.EXT3)
    (tmp_path / "o").mkdir()
    own, other = plan(host, "o:ro", image_file=image)
    assert (own.path, own.writable, own.given) == (str(image), False, "image")
    assert other.path == f"{tmp_path}/o"
    (own,) = plan(host, image_file=image, writable=True)
    assert own.writable
    assert len(plan(host, image_file=image, writable=True, writable_tmpfs=True)) == 1


@each_row("kinds", [(), (FileSystem.SQUASHFS,)])
def test_writable_is_refused_for_an_image_that_cannot_change(host, tmp_path, kinds):
    with pytest.raises(UsageError, match="--writable cannot change") as caught:
        plan(host, image_file=make_sif(tmp_path / "a.sif", *kinds), writable=True)
    assert "--writable-tmpfs" in str(caught.value.hint)


@each_row(
    ("text", "size"),
    [
        *(("", 2 << 30), ("512M", 512 << 20), ("512 MiB", 512 << 20), ("2g", 2 << 30), ("2GB", 2 << 30), ("4K", 4096)),
        *(("25%", 2 << 30), ("100%", 8 << 30)),
    ],
)
def test_the_size_of_layers_in_memory(host, text, size):
    assert choose_tmpfs_size(RunOptions(tmpfs_size=text), host) == size


def test_the_size_of_layers_in_memory_is_64_mib_at_least_where_nobody_says(host):
    host.memory = 100 << 20
    assert choose_tmpfs_size(RunOptions(), host) == 64 << 20


@each_row("text", ["much", "0", "0M", "-1G", "1.5G", "101%", "0%", "5", "G", "9" * 30 + "G", "٣G", "1GX"])
def test_what_is_not_a_size_is_refused(host, text):
    with pytest.raises(UsageError, match="not a valid tmpfs size") as caught:
        choose_tmpfs_size(RunOptions(tmpfs_size=text, given={"tmpfs_size": "--tmpfs-size"}), host)
    assert "512M" in str(caught.value.hint)


def layer(path, *, writable: bool = True, kind: str = "folder") -> OverlayLayer:
    return OverlayLayer(str(path), kind, writable=writable)


def test_base_is_remembered_and_the_last_one_counts(tmp_path) -> None:
    assert read_base(str(tmp_path)) == ""
    for image in ("/a.sif", "/a.sif", "docker://ubuntu:22.04"):
        remember_base([layer(tmp_path)], image)
        assert read_base(str(tmp_path)) == image
    assert len(list(tmp_path.iterdir())) == 1


def test_base_is_remembered_where_there_is_a_place_for_it(tmp_path) -> None:
    remember_base([layer(tmp_path, writable=False), layer(tmp_path / "x.img", kind="ext3")], "/a.sif")
    assert list(tmp_path.iterdir()) == []
    remember_base([layer(tmp_path / "missing")], "/a.sif")
    (tmp_path / ".kedge-base").mkdir()
    remember_base([layer(tmp_path)], "/a.sif")
    assert read_base(str(tmp_path)) == ""


@each_row(("library", "has_old"), [(b"libfuse.so.2", True), (b"libfuse3.so.4", False)])
def test_options_are_those_that_the_library_knows(tmp_path, library: bytes, has_old: bool) -> None:
    program = tmp_path / "fuse2fs"
    program.write_bytes(b"\x7fELF" + library + b"\0norecovery\0")
    options = choose_options(str(program), ExtImage("/x.img", 4096, 0, writable=False)).split(",")
    assert {"ro", "norecovery", "offset=4096", "fakeroot"} <= {*options}
    assert ("use_ino" in options, "big_writes" in options) == (has_old, has_old)
