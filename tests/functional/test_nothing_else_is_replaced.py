# SPDX-License-Identifier: BSD-3-Clause
"""An image replaces an image of its own format, and nothing else: neither swapped words nor --force cost a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to, warm_runner
from tests.builders.rows import each_row

runner = warm_runner
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


def test_verbs_with_swapped_words_say_so(runner: Runner, folder: Path) -> None:
    (folder / "changes/upper").mkdir(parents=True, exist_ok=True)
    for words, said in (
        ("build swap.def a.sif", "the output comes first: kedge build a.sif swap.def"),
        ("build swap.def new.sif", "the output comes first: kedge build new.sif swap.def"),
        ("build --force swap.def a.sif", "the output comes first: kedge build a.sif swap.def"),
        ("convert --force new.sqsh a.sif", "kedge convert a.sif new.sqsh"),
        ("commit --base a.sif new.sif changes", "the overlay comes first: kedge commit changes new.sif"),
        ("commit --force --base a.sif new.sif changes", "the overlay comes first: kedge commit changes new.sif"),
    ):
        done = runner.run(*words.split(), cwd=folder)
        assert done.returncode != 0, words
        assert said in done.stderr
        assert "rm -r" not in done.stderr
    assert (folder / "swap.def").read_text() == RECIPE


@each_row(
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
        ("bundle a.sif", "a.sif"),
        ("recipe convert swap.def -o a.sif", "a.sif"),
        ("explain --html a.sif a.sif", "a.sif"),
        ("bench start --output swap.def a.sif", "swap.def"),
        ("bench start --output a.sif a.sif", "a.sif"),
        ("submit --site local --script swap.def a.sif true", "swap.def"),
        ("submit --site local --script a.sif a.sif true", "a.sif"),
        ("build --log swap.def new.sif swap.def", "swap.def"),
        ("build --iidfile swap.def new.sif swap.def", "swap.def"),
        ("build --metadata-file a.sif new.sif swap.def", "a.sif"),
        ("recipe convert --force swap.def -o a.sif", "a.sif"),
        ("script convert --force swap.def -o a.sif", "a.sif"),
        ("explain --force --html a.sif a.sif", "a.sif"),
        ("explain --force --html swap.def a.sif", "swap.def"),
        ("doctor --force --html swap.def", "swap.def"),
        ("doctor --force --report swap.def", "swap.def"),
        ("image size --force --page swap.def a.sif", "swap.def"),
    ],
)
def test_what_is_no_such_image_stays(runner: Runner, folder: Path, words: str, kept: str) -> None:
    before = (folder / kept).read_bytes()
    done = runner.run(*words.split(), cwd=folder)
    assert done.returncode != 0
    assert "--force" not in done.stderr, "it would not help"
    assert "remove it yourself: rm" in done.stderr
    assert (folder / kept).read_bytes() == before


def test_sif_new_offers_no_force_that_it_has_not(runner: Runner, folder: Path) -> None:
    done = runner.run("sif", "new", "swap.def", cwd=folder)
    assert done.returncode == 31
    assert "--force" not in done.stderr
    assert (folder / "swap.def").read_text() == RECIPE


def test_what_every_run_writes_anew_is_replaced(runner: Runner, folder: Path) -> None:
    runner.read("pull", "sh.sif", "host:sh,true", cwd=folder)
    (folder / "own.def").write_text("Bootstrap: localimage\nFrom: sh.sif\n%post\necho said\n")
    commands = (
        "build --force --no-cache --log log --iidfile id --metadata-file facts new.sif own.def",
        "bench start --repeats 1 --output figures a.sif",
        "submit --site local --script job a.sif true",
    )
    for words in commands * 2:
        runner.read(*words.split(), cwd=folder)
    assert "said" in (folder / "log").read_text()


def test_images_are_replaced(runner: Runner, folder: Path) -> None:
    (folder / "empty.sif").touch()
    for name in ("a.sif", "empty.sif"):
        runner.read("pull", "--force", str(folder / name), "host:true")
    runner.read("pull", "--sandbox", "box", "host:true", cwd=folder)
    runner.read("pull", "--force", "--sandbox", "box", "host:true", cwd=folder)
