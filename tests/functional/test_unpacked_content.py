# SPDX-License-Identifier: BSD-3-Clause
"""An unpacked image is known by its content: copies and touched files share it, changed ones never do."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.requirements import require_program
from tests.wording import assert_says


@pytest.fixture
def runner() -> Iterator[Runner]:
    yield from each_role("user")


@pytest.fixture
def image(runner: Runner) -> Path:
    """A SIF whose `/etc/mark` says which it is."""
    return make_image(runner, "first")


def make_image(runner: Runner, text: str, *words: str) -> Path:
    folder = make_sandbox(runner.folder / f"sandbox-{text}")
    (folder / "etc/mark").write_text(text)
    path = runner.home / f"{text}.sif"
    runner.read("convert", *words, str(give_to(runner, folder)), str(path))
    return path


def unpack(runner: Runner, path: Path, *words: str) -> dict[str, Any]:
    (done,) = json.loads(runner.read("unpack", "--json", *words, str(path)))
    return dict(done)


def list_images(runner: Runner) -> list[str]:
    return sorted(path.name for path in (runner.folder / "node/images").iterdir() if path.is_dir())


def see_mark(runner: Runner, path: Path) -> str:
    return runner.read("exec", "--root-from", "unpack", str(path), "cat", "/etc/mark")


def copy(runner: Runner, path: Path, name: str) -> Path:
    target = path.with_name(name)
    shutil.copyfile(path, target)
    return give_to(runner, target)


def test_a_copy_and_a_touched_file_are_not_unpacked_again(runner: Runner, image: Path) -> None:
    first = unpack(runner, image)
    assert first["unpacked"]
    image.touch()
    touched = unpack(runner, image)
    copied = unpack(runner, copy(runner, image, "copy.sif"))
    moved = unpack(runner, image.rename(image.with_name("moved.sif")))
    for each in (touched, copied, moved):
        assert (each["unpacked"], each["root"]) == (False, first["root"])
    assert len(list_images(runner)) == 1


def test_a_signed_image_is_the_same_image(runner: Runner, image: Path) -> None:
    """A signature is no part of the root file system."""
    first = unpack(runner, image)
    runner.read("key", "newpair", "--name", "Me", "--email", "me@example.org", "--password", "")
    runner.read("sign", str(image))
    assert unpack(runner, image)["root"] == first["root"]


def test_an_overlay_in_the_image_that_is_written_does_not_change_its_root(runner: Runner, image: Path) -> None:
    require_program("fuse2fs")
    runner.read("overlay", "create", "--size", "64", str(image))
    first = unpack(runner, image)
    for number in range(2):
        runner.read("exec", "--writable", str(image), "touch", f"/written-{number}")
        again = unpack(runner, image)
        assert (again["unpacked"], again["root"]) == (False, first["root"])
    assert "written-1" in runner.read("exec", str(image), "ls", "/")


def test_starts_of_a_known_file_hash_nothing(runner: Runner, image: Path) -> None:
    assert see_mark(runner, image) == "first"
    again = runner.run("exec", "--verbose", "--root-from", "unpack", str(image), "true")
    assert_says(again.stderr, "run/already-unpacked-node")
    other = copy(runner, image, "other.sif")
    linked = image.with_name("linked.sif")
    os.link(image, linked)  # moves the time of the first name, too
    for path in (other, linked, image):
        assert see_mark(runner, path) == "first"
    for path in (other, linked, image):  # one does not make the others be forgotten
        said = runner.run("exec", "--verbose", "--root-from", "unpack", str(path), "true").stderr
        assert "already unpacked on this node" in said, path


def test_changed_bytes_are_another_image_whatever_the_times_say(runner: Runner, image: Path) -> None:
    second = make_image(runner, "other")
    assert see_mark(runner, image) == "first"
    assert see_mark(runner, second) == "other"
    before = image.stat()
    with image.open("r+b") as file:  # as a program does that does not want to be noticed
        file.write(second.read_bytes())
        file.truncate(second.stat().st_size)
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert see_mark(runner, image) == "other"


def test_bytes_of_files_count_and_not_the_tables_alone(runner: Runner) -> None:
    """An image that differs in the bytes of one file, with the same header and tables, is not taken for the other."""
    image = make_image(runner, "plain", "--compress", "none")
    twin = copy(runner, image, "twin.sif")
    twin.write_bytes(image.read_bytes().replace(b"plain", b"other"))
    assert see_mark(runner, image) == "plain"
    assert see_mark(runner, twin) == "other"
    assert see_mark(runner, image) == "plain"


def test_images_that_nobody_used_for_days_are_dropped(runner: Runner, image: Path) -> None:
    old = Path(unpack(runner, image)["root"]).parent
    long_ago = time.time() - 15 * 86400
    os.utime(old / "lock", (long_ago, long_ago))
    kept = runner.run("unpack", str(make_image(runner, "second")), env={"KEDGE_NODE_DAYS": "0"})
    assert (kept.returncode, old.exists()) == (0, True)
    done = runner.run("unpack", "--verbose", str(make_image(runner, "third")))
    assert "unused for 14 days" in done.stderr
    assert not old.exists()
    (record,) = [path for path in (runner.folder / "node/files").iterdir() if old.name in path.read_text()]
    os.utime(record, (long_ago, long_ago))
    runner.read("unpack", str(make_image(runner, "fourth")))
    assert not record.exists()
    assert see_mark(runner, image) == "first"


def test_a_file_that_is_changed_while_it_is_unpacked_is_refused(image, tmp_path, monkeypatch):
    from kedge.errors import FileProblem
    from kedge.image.sources import content_digest as image_content
    from kedge.image.unpack import unpack as unpack_here
    from kedge.image.workplace import Workplace
    from kedge.system.settings import Settings

    hash_content = image_content.hash_content

    def write_meanwhile(*words: Any) -> str:
        identity = hash_content(*words)
        time.sleep(0.05)  # a tick of the file system's clock
        with image.open("r+b") as file:
            file.write(file.read(1))
        return identity

    monkeypatch.setattr(image_content, "hash_content", write_meanwhile)
    (tmp_path / "node").mkdir(mode=0o700)
    settings = Settings.load({"node_directory": str(tmp_path / "node")}, {"HOME": str(tmp_path)})
    with pytest.raises(FileProblem, match="changed while kedge unpacked it"):
        unpack_here(str(image), Workplace(settings))
    assert not list((tmp_path / "node").glob("files/*"))
