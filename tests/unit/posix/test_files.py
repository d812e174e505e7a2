# SPDX-License-Identifier: BSD-3-Clause
"""Files that appear whole or not at all: what may be replaced, permissions, leftovers. No services, no root."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kedge.errors import LimitReached, OutputExists
from kedge.posix.files import apply_umask, atomic_output, explain, refuse_existing


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
