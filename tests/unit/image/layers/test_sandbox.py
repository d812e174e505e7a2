# SPDX-License-Identifier: BSD-3-Clause
"""Sandbox directories: built, by how many, published, cleaned up. What only root can do is checked as root."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.base.image_format import ImageFormat
from kedge.base.progress import Silent
from kedge.base.tree import Node, NodeKind, copy_tree
from kedge.errors import FileProblem, HostileImage, OutputExists
from kedge.image import write_image
from kedge.image.layers.directory_tree import read_folder
from kedge.image.layers.flatten import flatten
from kedge.image.layers.sandbox import SandboxSink
from kedge.image.write_image import WriteOptions
from kedge.system.confined_paths import remove_tree
from tests.builders.layers import device, file, folder, layer, names_in, pax, sources, symlink
from tests.builders.rows import each_row


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remove_tree(tmp_path)  # pytest cannot remove read-only directories


def unpack(target: Path, *tars: bytes, force: bool = False, progress: Notes | None = None) -> None:
    with SandboxSink(target, force=force, progress=progress) as sink:
        sink.finish(flatten(sources(*tars), sink))


def test_sandbox_given_up_while_processes_write_leaves_nothing(place: Path) -> None:
    with pytest.raises(HostileImage), SandboxSink(place / "box", writers=2) as sink:
        sink.finish(flatten(sources(layer(file("a", b"x" * 9000), file("../b", b"y"))), sink))
    assert names_in(place) == []


def test_sandbox_that_processes_cannot_write_is_one_error(place: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(FileProblem), SandboxSink(place / "box", writers=2) as sink:
            sink.finish(flatten(sources(layer(file("a", bytes(range(256)) * 400))), sink))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names_in(place) == []


@pytest.mark.parametrize("time", [b"1700000000.123456789", b"4611686100.5", b"9999999999.000000001", b"7"])
def test_sandbox_keeps_nanoseconds_and_years_after_2116(place: Path, time: bytes) -> None:
    inside = [pax({b"mtime": time}) + file("f", b"x"), pax({b"mtime": time}) + symlink("s", "f")]
    unpack(place / "box", layer(pax({b"mtime": time}) + folder("d"), *inside))
    seconds, _, fraction = time.partition(b".")
    expected = int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))
    assert {(place / "box" / name).lstat().st_mtime_ns for name in ("d", "f", "s")} == {expected}
    root, source = read_folder(place / "box")
    with SandboxSink(place / "again") as sink:
        sink.finish(copy_tree(root, source, sink))
    assert (place / "again" / "d").stat().st_mtime_ns == expected


def test_sandbox_has_folders_deeper_than_files_may_be_open(place: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256 + len(list(Path("/proc/self/fd").iterdir())), before[1]))
    try:
        unpack(place / "box", layer(file("d/" * 1500 + "x", b"deep", mode=0o640)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    found = (place / "box" / ("d/" * 1500 + "x")).stat()
    assert (found.st_size, found.st_mode & 0o777) == (4, 0o640)


def test_sandbox_writes_large_files_with_holes(place: Path) -> None:
    data = b"start" + bytes(3 << 20) + b"end" + bytes(1 << 20)
    unpack(place / "box", layer(file("big", data)))
    made = place / "box/big"
    assert made.read_bytes() == data
    assert made.stat().st_size == len(data)
    assert made.stat().st_blocks < 1000  # of 8192


def test_sandbox_keeps_owners_devices_and_capabilities_as_root_and_says_what_it_cannot(place: Path) -> None:
    notes = Notes()
    capability = b"\x01\0\0\x02\0\x04\0\0" + bytes(12)
    unpack(
        place / "box",
        layer(
            file("f", b"x", mode=0o4755, owner=(12, 34), xattrs={b"security.capability": capability}),
            device("null", 1, 3, mode=0o666),
            device("zero", 1, 5),
            symlink("s", "x", owner=(5, 6)),
        ),
        progress=notes,
    )
    made, null = (place / "box/f").stat(), (place / "box/null").stat()
    assert stat.S_IMODE(made.st_mode) == 0o4755
    if stat.S_ISCHR(null.st_mode):
        assert (made.st_uid, made.st_gid, null.st_rdev) == (12, 34, os.makedev(1, 3))
        assert (place / "box/s").lstat().st_uid == 5
        assert os.getxattr(place / "box/f", "security.capability") == capability
        assert notes.notes == []
    else:
        assert stat.S_ISREG(null.st_mode)
        assert stat.S_IMODE(null.st_mode) == 0o666
        assert made.st_uid == os.geteuid()
        assert sum("devices" in note for note in notes.notes) == 1
        assert any("capabilities" in note or "attributes" in note for note in notes.notes)


def test_sandbox_keeps_user_attributes(place: Path) -> None:
    try:
        os.setxattr(place, "user.test", b"1")
    except OSError:
        pytest.skip("this file system has no user attributes")
    unpack(place / "box", layer(file("f", b"x", mode=0o444, xattrs={b"user.note": b"hi"})))
    assert os.getxattr(place / "box/f", "user.note") == b"hi"


def test_sandbox_refuses_an_existing_target_and_replaces_it_when_forced(place: Path) -> None:
    target = place / "box"
    (target / ".singularity.d").mkdir(parents=True)
    (target / "old").write_text("old")
    (target / "old").chmod(0o400)
    target.chmod(0o500)
    with pytest.raises(OutputExists):
        SandboxSink(target)
    unpack(target, layer(file("new", b"n")), force=True)
    assert names_in(target) == ["new"]
    assert names_in(place) == ["box"]


def test_sandbox_never_replaces_a_folder_that_is_no_image(place: Path) -> None:
    """`--force --sandbox .` must not delete what somebody works on."""
    (place / "work").mkdir()
    (place / "work" / "thesis").write_text("years")
    with pytest.raises(OutputExists, match="not an image"):
        SandboxSink(place / "work", force=True)
    assert names_in(place / "work") == ["thesis"]


def test_sandbox_refuses_a_target_that_appears_meanwhile(place: Path) -> None:
    sink = SandboxSink(place / "box")
    (place / "box").mkdir()
    with pytest.raises(OutputExists):
        sink.finish(Node(NodeKind.DIRECTORY))
    assert names_in(place) == ["box"]


def test_sandbox_does_not_follow_a_link_at_the_target(place: Path) -> None:
    (place / "elsewhere").mkdir()
    (place / "box").symlink_to("elsewhere")
    with pytest.raises(OutputExists):
        SandboxSink(place / "box")
    unpack(place / "box", layer(file("f")), force=True)
    assert not (place / "box").is_symlink()
    assert names_in(place / "elsewhere") == []


def test_sandbox_removes_everything_on_failure(place: Path) -> None:
    with SandboxSink(place / "box") as sink:
        sink.add(b"data")
        assert names_in(place)
    assert names_in(place) == []

    root = Node(NodeKind.DIRECTORY, 0o500)
    inner = root.children[b"read-only"] = Node(NodeKind.DIRECTORY, 0o500)
    inner.children[b"f"] = Node(NodeKind.FILE)
    root.children[b"z"] = Node(NodeKind.FILE)
    root.children[b"z"].content = 99  # was never spooled
    with pytest.raises(FileProblem):
        SandboxSink(place / "box").finish(root)
    assert names_in(place) == []


def test_sandbox_reports_a_place_that_cannot_be_written(place: Path) -> None:
    with pytest.raises(FileProblem, match="No such file"):
        SandboxSink(place / "missing" / "box")


@each_row("name", [b"..", b".", b"", b"../evil", b"/evil", b"a/b", b"a\0b"])
def test_sandbox_refuses_names_that_lead_elsewhere(place: Path, name: bytes) -> None:
    root = Node(NodeKind.DIRECTORY)
    root.children[b"d"] = Node(NodeKind.DIRECTORY)
    root.children[b"d"].children[name] = Node(NodeKind.FILE)
    with pytest.raises(HostileImage, match="not a valid file name"):
        SandboxSink(place / "box").finish(root)
    assert names_in(place) == []


class Seen(Exception):
    """What the directory's writer was made with."""


@each_row(("threads", "writers"), [(1, 0), (2, 2), (4, 4), (64, 4)])
def test_a_directory_has_writers_where_there_are_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, threads: int, writers: int
) -> None:
    def make(_target: Path, **named: Any) -> None:
        raise Seen(named["writers"])

    monkeypatch.setattr(write_image, "SandboxSink", make)
    image: Any = None  # nothing is read before
    with pytest.raises(Seen) as seen:
        write_image.write_image(tmp_path / "box", ImageFormat.SANDBOX, image, WriteOptions(threads=threads))
    assert seen.value.args == (writers,)
