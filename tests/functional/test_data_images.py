# SPDX-License-Identifier: BSD-3-Clause
"""A directory of data as one SquashFS file: written by `convert --data`, bound into containers, and a directory again.

As an ordinary user, with and without /dev/fuse; and mounted by root.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner, each_role, give_to, list_left, make_sandbox, run_after
from tests.builders.rows import each_row
from tests.requirements import require_program, require_root

FILES = {"train/n01440764/n01440764_1.JPEG": 30000, "val/n01440764/val_1.JPEG": 700, "private": 10, "empty": 0}
LOOK = "cd /data && ls -aR . && cat private && wc -c < train/n01440764/n01440764_1.JPEG"


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(getattr(request, "param", "user"), is_warm=True)


@pytest.fixture
def image(runner: Runner) -> str:
    return str(give_to(runner, make_sandbox(runner.folder / "sandbox")))


@pytest.fixture
def data(runner: Runner) -> Path:
    """Files in directories as ImageNet has them, and one that only its owner may read."""
    folder = runner.home / "imagenet"
    for name, size in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(number * 7 % 256 for number in range(size)) if name != "private" else b"mine alone")
    (folder / "private").chmod(0o600)
    return give_to(runner, folder)


def pack(runner: Runner, data: Path, *words: str) -> Path:
    """The data as one file."""
    file = runner.home / "data.sqsh"
    runner.read("convert", "--data", *words, str(data), str(file))
    return file


def list_names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_data_image_holds_the_files_and_nothing_else(runner: Runner, data: Path) -> None:
    """As unsquashfs sees them, and as they are when it becomes a directory again."""
    file, again = pack(runner, data, "--compress", "none", "--verify"), runner.home / "again"
    unpacked = runner.folder / "by-unsquashfs"
    words = [require_program("unsquashfs"), "-quiet", "-no-progress", "-dest", str(unpacked), str(file)]
    subprocess.run(words, check=True, capture_output=True)
    runner.read("convert", "--data", str(file), str(again))
    for folder in (unpacked, again):
        assert list_names(folder) == list_names(data)
        assert all((folder / name).read_bytes() == (data / name).read_bytes() for name in FILES)
    assert (again / "private").stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size > sum(FILES.values())  # JPEGs do not become smaller, and are not asked to


def look(runner: Runner, image: str, file: Path, setup: str) -> None:
    """The files are in the container, below two places, and cannot be changed."""
    words = ("exec", "-B", f"{file}:/data:image-src=/", "-B", f"{file}:/train:image-src=/train", image)
    done = run_after(setup, runner, *words, "sh", "-c", f"{LOOK} && ls /train")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("mine alone30000\nn01440764\n"), done.stdout
    assert "singularity" not in done.stdout
    refused = run_after(setup, runner, *words, "sh", "-c", "echo no > /data/private")
    assert refused.returncode != 0
    assert "Read-only file system" in refused.stderr


def is_unpacked(runner: Runner) -> bool:
    return any(path.endswith("/private") for path in list_left(runner, "node"))


def shut_fuse(runner: Runner) -> str:
    """What takes FUSE from an ordinary user in a mount namespace."""
    shut = runner.folder / "shut"
    shut.touch(mode=0)
    return f"mount --bind {shut} /dev/fuse"


@pytest.mark.parametrize("runner", ["root", "user"], indirect=True)
def test_data_image_is_mounted_where_fuse_works(runner: Runner, image: str, data: Path) -> None:
    require_root()
    require_program("squashfuse_ll")
    look(runner, image, pack(runner, data), "true")
    assert not is_unpacked(runner)


def test_data_image_is_unpacked_on_the_node_where_fuse_does_not(runner: Runner, image: str, data: Path) -> None:
    require_root()
    look(runner, image, pack(runner, data), shut_fuse(runner))
    assert is_unpacked(runner)


def test_data_image_too_large_to_be_unpacked_is_refused_without_fuse(runner: Runner, image: str, data: Path) -> None:
    require_root()
    words = ("exec", "-B", f"{pack(runner, data)}:/data:image-src=/", image, "true")
    done = run_after(shut_fuse(runner), runner, *words, env={"KEDGE_UNPACK_LIMIT": "0"})
    assert done.returncode == 255
    assert "cannot open /dev/fuse" in done.stderr
    assert "kedge convert --data FILE DIRECTORY" in done.stderr
    assert list_left(runner, "node") == []


@each_row("target", ["data.sif", "oci:data"])
def test_data_image_is_squashfs_or_a_directory(runner: Runner, data: Path, target: str) -> None:
    done = runner.run("convert", "--data", str(data), target)
    assert done.returncode != 0
    assert "--data converts directories and SquashFS files into each other" in done.stderr
