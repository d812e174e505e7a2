# SPDX-License-Identifier: BSD-3-Clause
"""What leaves is looked at: a writer that is wrong leaves no file, and what it left before is found."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kedge.errors import CorruptImage, FaultyImage, UsageError
from kedge.image.formats.squashfs import layout
from tests.builders import layers as build
from tests.builders.builds import Workshop
from tests.builders.containers import Runner, give_to, list_left, warm_runner
from tests.builders.images import make_config
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path
from tests.fakes.registry import FakeRegistry
from tests.functional.test_block_sized_files import make_docker_archive
from tests.requirements import REPOSITORY
from tests.wording import assert_says

runner = warm_runner

BLOCK = 131072
NAMES = ("first", "second", "third", "fourth", "fifth", "sixth")
# text, so that several of them lie in one piece of a layer that is inflated
FILES = {name: b"".join(b"%s %d\n" % (name.encode(), line) for line in range(20_000))[:BLOCK] for name in NAMES}


def with_fault(runner: Runner, name: str) -> Runner:
    return replace(runner, program=(sys.executable, str(REPOSITORY / "tests/programs/kedge_with_a_fault.py"), name))


@pytest.fixture
def archive(runner: Runner) -> Iterator[str]:
    """A docker-archive with files of exactly one block; results of the test are removed."""
    path = runner.home / "image.tar"
    path.write_bytes(make_docker_archive(FILES))
    give_to(runner, runner.home)
    yield f"docker-archive:{path}"
    for made in runner.home.iterdir():
        if made.is_file():
            made.unlink()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        tar = build.layer(*(build.file(name, data) for name, data in FILES.items()))
        made.add_image("team/blocks", "1", [build.compress(tar)], make_config([tar]))
        yield made


def list_images(runner: Runner) -> list[str]:
    """Files of the cache that are, or were to become, images."""
    parts = ("images", "tmp", "records", "leases")
    return [path for path in list_left(runner, "cache") if Path(path).relative_to(runner.folder).parts[1] in parts]


def check_refusal(runner: Runner, target: Path, *words: str, cwd: Path | None = None) -> str:
    """The command fails, says what and where, and nothing is left."""
    before = sorted(path.name for path in target.parent.iterdir())
    temporary = runner.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    give_to(runner, temporary)
    done = with_fault(runner, "write_as_before").run(*words, env={"TMPDIR": str(temporary)}, cwd=cwd)
    assert done.returncode == FaultyImage.exit_code, done.stdout + done.stderr
    assert_says(done.stderr, "base/bug-not-your-input-squashfs")
    assert "lies in fragment 0" in done.stderr
    assert sorted(path.name for path in target.parent.iterdir()) == before, "nothing under the final name"
    assert not list_images(runner)
    assert not list(temporary.rglob("*"))
    return done.stderr


@pytest.mark.parametrize(("verb", "ending"), [("convert", "sif"), ("pull", "sqsh")])
def test_a_faulty_image_of_an_archive_is_not_left(verb: str, ending: str, archive: str, runner: Runner) -> None:
    target = runner.home / f"made.{ending}"
    words = (archive, str(target)) if verb == "convert" else (str(target), archive)
    said = check_refusal(runner, target, verb, *words)
    assert any(f"/{name}" in said for name in NAMES)
    assert f"input: {archive.partition(':')[2]}" in said.replace("  ", " ")


def test_a_faulty_image_of_a_registry_is_not_left(archive: str, runner: Runner, registry: FakeRegistry) -> None:
    del archive
    reference, target = f"docker://{registry.host}/team/blocks:1", runner.home / "made.sif"
    said = check_refusal(runner, target, "pull", "--no-https", str(target), reference)
    assert f"{registry.host}/team/blocks:1" in said


def test_a_faulty_image_of_a_build_is_not_left(shop: Workshop) -> None:
    for name, data in FILES.items():
        (shop.context / name).write_bytes(data)
    shop.write("Dockerfile", "FROM scratch\nCOPY first second third /\n")
    check_refusal(shop.runner, shop.context / "made.sif", "build", "made.sif", ".", cwd=shop.context)


def test_an_error_is_told_as_json(archive: str, runner: Runner) -> None:
    done = with_fault(runner, "write_as_before").run("--json", "convert", archive, str(runner.home / "made.sif"))
    told = json.loads(done.stdout)
    assert (told["error"], told["exit_code"]) == ("faulty-image", 27)
    assert told["context"]["table"] == "inode table"
    assert told["context"]["path"].removeprefix("/") in NAMES
    assert told["context"]["input"]


# -- contents


def test_wrong_contents_are_found_by_comparing_alone(runner: Runner, archive: str) -> None:
    path, target = runner.home / "small.tar", runner.home / "made.sif"
    path.write_bytes(make_docker_archive({"one": b"1" * 100, "two": b"2" * 100}))
    mixed = with_fault(runner, "mix_contents")
    source = f"docker-archive:{path}"
    assert mixed.run("convert", source, str(target)).returncode == 0  # its tables are right
    target.unlink()
    done = mixed.run("convert", "--verify", source, str(target))
    assert done.returncode == FaultyImage.exit_code, done.stderr
    assert_says(done.stderr, "base/this-is-a-bug-in")
    assert not target.exists()
    assert archive


def test_a_verified_pull_is_cached_as_such(runner: Runner, archive: str, registry: FakeRegistry) -> None:
    del archive
    reference = f"docker://{registry.host}/team/blocks:1"
    first = runner.run("pull", "--no-https", str(runner.home / "plain.sif"), reference)
    second = runner.run("pull", "--no-https", "--verify", str(runner.home / "compared.sif"), reference)
    assert "compared with the input" not in first.stderr
    assert "compared with the input" in second.stderr, "an image that nobody compared does not count"
    done = runner.run("convert", "--verify", str(runner.home / "plain.sif"), str(runner.home / "made"))
    assert done.returncode == UsageError.exit_code, "directories cannot be compared"
    assert "--verify" in done.stderr
    assert (runner.home / "plain.sif").read_bytes() == (runner.home / "compared.sif").read_bytes()


# -- what an earlier version left


@pytest.fixture
def faulty(archive: str, runner: Runner) -> Path:
    path = runner.home / "faulty.sif"
    with_fault(runner, "write_unseen").read("convert", archive, str(path))
    return path


@each_row("words", [(), ("--quick",)])
def test_faulty_files_are_found(words: tuple[str, ...], faulty: Path, archive: str, runner: Runner) -> None:
    good = runner.home / "good.sqsh"
    runner.read("convert", "--force", archive, str(good))
    done = runner.run("sif", "verify", *words, str(good), str(faulty))
    assert done.returncode == CorruptImage.exit_code
    assert f"{good}: ok, " in done.stdout
    assert f"{faulty}: broken: SquashFS inode table" in done.stdout
    assert_says(done.stderr, "image/pull-build-copy-again", faulty)
    told = json.loads(runner.run("--json", "sif", "verify", *words, str(good), str(faulty)).stdout)
    assert [image["state"] for image in told["images"]] == ["ok", "broken"]
    assert told["images"][0]["files"] > 2
    assert "inode table" in told["images"][1]["problem"]


def test_damaged_contents_are_found_unless_quick(archive: str, runner: Runner) -> None:
    image = runner.home / "damaged.sqsh"
    runner.read("convert", "--compress", "gzip", f"{runner.home}/image.tar", str(image))
    data = bytearray(image.read_bytes())
    data[layout.SUPERBLOCK_SIZE + 5000] ^= 0xFF
    image.write_bytes(bytes(data))
    assert runner.run("sif", "verify", "--quick", str(image)).returncode == 0
    assert runner.run("sif", "verify", str(image)).returncode == CorruptImage.exit_code
    assert archive


def test_a_faulty_file_is_not_copied(faulty: Path, runner: Runner) -> None:
    for name in ("copy.sif", "copy.sqsh"):
        done = runner.run("convert", str(faulty), str(runner.home / name))
        assert done.returncode == CorruptImage.exit_code, done.stderr
        assert_says(done.stderr, "image/broken-squashfs-inode-table", faulty)
        assert not (runner.home / name).exists()


def test_images_of_apptainer_are_whole(runner: Runner) -> None:
    images = [
        fixture_path(f"{name}.sif") for name in ("one-group", "two-groups", "one-group-signed-pgp", "busybox_arm64")
    ]
    said = runner.read("sif", "verify", *map(str, images))
    assert [image for image in images if f"{image}: ok, " not in said] == []


def test_what_is_no_image_is_said(runner: Runner, archive: str) -> None:
    done = runner.run("sif", "verify", archive.partition(":")[2])
    assert done.returncode != 0
    assert_says(done.stderr, "image/tar-archive-not-image")
    empty = runner.home / "empty.sif"
    runner.read("sif", "new", str(empty))
    assert "not checked" in runner.read("sif", "verify", str(empty))


@pytest.fixture
def spoiled(runner: Runner, archive: str, registry: FakeRegistry) -> Iterator[Path]:
    """An image that a user has from the cache, and that was written wrongly; and another in the cache itself."""
    del archive
    reference, target = f"docker://{registry.host}/team/blocks:1", runner.home / "delivered.sif"
    before = with_fault(runner, "write_unseen")
    before.read("pull", "--no-https", "--link-mode", "copy", str(runner.home / "copied.sif"), reference)
    before.read("pull", "--no-https", "--fix-perms", str(target), reference)
    yield target
    runner.run("cache", "clean", "--force")


def test_faulty_images_of_the_cache_are_found(spoiled: Path, runner: Runner) -> None:
    told = runner.run("doctor", "--offline", "--only", "cached-images")
    assert_says(told.stdout, "doctor/images-cannot-read-whole", 2)
    assert "kedge cache verify" in told.stdout
    done = runner.run("cache", "verify")
    assert done.returncode == CorruptImage.exit_code, done.stderr
    assert "was written wrongly: " in done.stderr, "the cache's own"
    assert f"{spoiled} is broken: SquashFS inode table" in done.stderr, "the user's"
    assert "Removed 1 damaged item" in done.stdout
    assert spoiled.exists()
    again = runner.run("--json", "cache", "verify")
    assert (again.returncode, json.loads(again.stdout)["removed"], json.loads(again.stdout)["faulty"]) == (0, [], [])
    assert "0 images checked" in runner.run("doctor", "--offline", "--only", "cached-images").stdout
