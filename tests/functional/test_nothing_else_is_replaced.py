# SPDX-License-Identifier: BSD-3-Clause
"""An image replaces an image of its own format, and nothing else: neither swapped words nor --force cost a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to

RECIPE = "Bootstrap: scratch\n%post\ntrue\n"


@pytest.fixture
def folder(runner: Runner) -> Path:
    """A directory of the user's with a recipe, an image and notes."""
    place = runner.home / "work"
    if not place.exists():
        runner.read("pull", str(place.with_suffix(".sif")), "host:true")
        place.mkdir()
        (place / "notes").mkdir()
        place.with_suffix(".sif").rename(place / "a.sif")
    (place / "swap.def").write_text(RECIPE)
    (place / "notes/text").write_text("mine")
    return give_to(runner, place)


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("image", ["a.sif", "new.sif"])
def test_build_with_swapped_words_says_so(runner: Runner, folder: Path, force: tuple[str, ...], image: str) -> None:
    done = runner.run("build", *force, "swap.def", image, cwd=folder)
    assert done.returncode != 0
    assert f"the output comes first: kedge build {image} swap.def" in done.stderr
    assert (folder / "swap.def").read_text() == RECIPE


def test_convert_with_swapped_words_says_so(runner: Runner, folder: Path) -> None:
    done = runner.run("convert", "--force", "new.sqsh", "a.sif", cwd=folder)
    assert done.returncode != 0
    assert "kedge convert a.sif new.sqsh" in done.stderr


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("pull --force swap.def host:true", "swap.def"),
        ("pull swap.def host:true", "swap.def"),
        ("pull --force --sandbox notes host:true", "notes/text"),
        ("pull --force --format squashfs a.sif host:true", "a.sif"),
        ("pull --force --sandbox a.sif host:true", "a.sif"),
        ("convert --force --format sif a.sif swap.def", "swap.def"),
        ("convert --force --format oci a.sif notes", "notes/text"),
        ("commit --force --format sif --base a.sif notes swap.def", "swap.def"),
        ("bundle --force swap.def", "swap.def"),
        ("recipe convert --force swap.def -o a.sif", "a.sif"),
        ("script convert --force swap.def -o a.sif", "a.sif"),
        ("explain --force --html a.sif a.sif", "a.sif"),
    ],
)
def test_what_is_no_such_image_stays(runner: Runner, folder: Path, words: str, kept: str) -> None:
    before = (folder / kept).read_bytes()
    done = runner.run(*words.split(), cwd=folder)
    assert done.returncode != 0
    assert "--force" not in done.stderr, "it would not help"
    assert "remove it yourself: rm" in done.stderr
    assert (folder / kept).read_bytes() == before


def test_images_are_replaced(runner: Runner, folder: Path) -> None:
    (folder / "empty.sif").touch()
    for name in ("a.sif", "empty.sif"):
        runner.read("pull", "--force", str(folder / name), "host:true")
    runner.read("pull", "--sandbox", "box", "host:true", cwd=folder)
    runner.read("pull", "--force", "--sandbox", "box", "host:true", cwd=folder)
