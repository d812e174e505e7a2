# SPDX-License-Identifier: BSD-3-Clause
"""Files that appear whole or not at all: what may be replaced, permissions, leftovers; writing that is begun early."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from kedge.errors import CorruptImage, LimitReached, OutputExists
from kedge.system.files import apply_umask, atomic_output, copy_range, explain, refuse_existing
from kedge.system.libc import begin_writing


@pytest.fixture
def private_umask() -> object:
    old = os.umask(0o077)
    yield
    os.umask(old)


def test_refuse_existing_passes_a_free_name(tmp_path: Path) -> None:
    refuse_existing(tmp_path / "free")
    refuse_existing(tmp_path / "free", force=True)


def test_refuse_existing_wants_force(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OutputExists, match="exists already"):
        refuse_existing(tmp_path / "link")
    refuse_existing(tmp_path / "link", force=True)


@pytest.mark.parametrize("mark", [".singularity.d", "oci-layout"])
def test_refuse_existing_lets_the_folder_of_an_image_go(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).mkdir()
    (tmp_path / "usr").mkdir()
    refuse_existing(tmp_path, force=True)


def test_refuse_existing_lets_an_empty_folder_go(tmp_path: Path) -> None:
    refuse_existing(tmp_path, force=True)


def test_refuse_existing_keeps_a_folder_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(OutputExists, match="is a directory, but not an image") as caught:
        refuse_existing(tmp_path, force=True)
    assert "--force replaces images only" in str(caught.value.hint)


def test_refuse_existing_keeps_devices_and_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(OutputExists, match="not a file"):
            refuse_existing(path, force=True)


def test_atomic_output_leaves_a_device_alone() -> None:
    with pytest.raises(OutputExists), atomic_output(Path("/dev/null"), force=True):
        raise AssertionError("nothing may be written")
    assert Path("/dev/null").is_char_device()


@pytest.mark.usefixtures("private_umask")
def test_atomic_output_follows_the_umask(tmp_path: Path) -> None:
    with atomic_output(tmp_path / "x", mode=0o755) as file:
        file.write(b"x")
    with atomic_output(tmp_path / "kept", mode=0o664, exact=True) as file:
        file.write(b"x")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o664
    assert apply_umask(0o755) == 0o700


def test_explain_names_the_limits_of_the_shell() -> None:
    error = explain(OSError(errno.EMFILE, "Too many open files"), Path("x"))
    assert isinstance(error, LimitReached)
    assert "ulimit -n" in str(error.hint)
    assert "ulimit -f" in str(explain(OSError(errno.EFBIG, "File too large"), Path("x")).hint)


def test_atomic_output_leaves_nothing_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_output(tmp_path / "x") as file:
        file.write(b"half" * (1 // 0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["in the kernel", "in steps", "given up halfway", "refused", "not in this Python"])
def test_copy_is_the_same_by_the_kernel_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    real = os.copy_file_range

    def copy(source: int, target: int, count: int, *places: int) -> int:
        if way == "refused" or (way == "given up halfway" and places[0] > 3000):
            raise OSError(errno.EXDEV, "other file systems")
        return real(source, target, count if way == "in the kernel" else min(count, 1000), *places)

    if way == "not in this Python":
        monkeypatch.delattr(os, "copy_file_range")
    else:
        monkeypatch.setattr(os, "copy_file_range", copy)
    chance = random.Random(7)
    data = chance.randbytes(3 << 20)
    (tmp_path / "source").write_bytes(data)
    for size in (0, 1, 999, 1000, 1001, 5000, (1 << 20) - 1, (1 << 20) + 1, 2 << 20):
        offset, before = chance.choice((0, 1, 4096)), chance.choice((0, 7, 4096))
        with (tmp_path / "source").open("rb") as source, (tmp_path / "target").open("w+b") as target:
            target.write(b"b" * before)
            copy_range(source, target, offset, size)
            target.write(b"behind")
        assert (tmp_path / "target").read_bytes() == b"b" * before + data[offset : offset + size] + b"behind", size
    with (
        (tmp_path / "source").open("rb") as source,
        (tmp_path / "target").open("w+b") as target,
        pytest.raises(CorruptImage, match="was truncated"),
    ):
        copy_range(source, target, 5, len(data))


def test_a_stretch_of_a_file_is_begun_and_stays_as_it_is(tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    with (tmp_path / "file").open("w+b") as file:
        file.write(content)
        file.flush()
        begin_writing(file.fileno(), 4096, 1 << 19)
    assert (tmp_path / "file").read_bytes() == content


def test_what_cannot_be_written_ahead_is_no_error() -> None:
    reading, writing = os.pipe()
    begin_writing(writing, 0, 4096)
    os.close(reading)
    os.close(writing)
    begin_writing(writing, 0, 4096)
