# SPDX-License-Identifier: BSD-3-Clause
"""Every attack against every way of starting a container, as an ordinary user who stands where users stand.

One start tries all of them: nothing may be reached but what the list says is open by design, and that must be.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.matrices import EVERY
from tests.builders.old_kernels import play_refusals
from tests.hostile.attacks.attack import WAYS
from tests.hostile.attacks.conftest import Ground, give_subordinate_ids
from tests.hostile.attacks.judging import list_missed, list_reached
from tests.hostile.attacks.scene import FLAG, Measured
from tests.requirements import require_program

# How the root is made: the image's form, the flags, what the kernel is played to refuse, and what --verbose says of it
BUILDS: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "overlay": ("sandbox", (), "", "kernel overlay"),
    "underlay": ("sandbox", ("--underlay",), "", "the image is a directory"),
    "fuse-overlayfs": ("sandbox", (), "overlay", "root: fuse-overlayfs"),
    "squashfuse": ("packed", ("--root-from", "squashfuse"), "", "/squashfuse"),
    "unpacked": ("packed", ("--root-from", "unpack"), "", "unpacked"),
}


def attack(ground: Ground, way: str, build: str, where: str = "project", prefix: tuple[str, ...] = ()) -> Measured:
    scene = ground.scene
    form, flags, refused, shown = BUILDS[build]
    image = str(ground.sandbox if form == "sandbox" else ground.packed)
    binds = ("--bind", f"{scene.base}/readonly:/data:ro", "--bind", f"{scene.base}/mountpoint:/mountpoint")
    words = [str(ground.kedge), "exec", "--verbose", *WAYS[way], *flags, *binds, "--env", f"ATTACK_FLAG={FLAG}", image]
    cwd = {"home": scene.home, "project": scene.project, "tmp": Path("/tmp")}[where]
    played = play_refusals(scene.base, refused, path="") if refused else {}
    measured = scene.start([*words, "/bin/attack", "attack"], cwd, played, prefix)
    assert shown in measured.errors
    return measured


@pytest.fixture(scope="module")
def baseline(ground: Ground) -> Measured:
    """The same attacks without any container: what this host gives to every program of the user's."""
    measured = ground.scene.start([str(ground.scene.attack), "attack"], ground.scene.project)
    assert measured.is_whole, measured.errors
    return measured


@EVERY
@pytest.mark.parametrize("way", WAYS)
def test_what_is_reached_is_what_is_open_by_design(
    ground: Ground, baseline: Measured, way: str, is_every: bool
) -> None:
    """Each way from the project with an overlay; its turn of the other roots and places, without any flag all."""
    for program in ("squashfuse", "fuse-overlayfs"):
        require_program(program)
    others = [*((build, "project") for build in [*BUILDS][1:]), ("overlay", "home"), ("overlay", "tmp")]
    number = [*WAYS].index(way)
    tried = others if is_every or not number else [others[number % 6], others[(number + 2) % 6]]
    measured = {" from ".join(each): attack(ground, way, *each) for each in [("overlay", "project"), *tried]}
    assert [one.errors for one in measured.values() if not one.is_whole] == []
    wrong = [*list_reached(measured, way), *list_missed(measured, way, baseline)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("way", [way for way in WAYS if "--fakeroot" in way])
def test_the_same_holds_with_subordinate_ids(ground: Ground, baseline: Measured, tmp_path: Path, way: str) -> None:
    measured = attack(ground, way, "overlay", prefix=give_subordinate_ids(ground.scene, tmp_path))
    assert measured.is_whole, measured.errors
    assert "subordinate ids" in measured.errors
    wrong = [*list_reached({"overlay": measured}, way), *list_missed({"overlay": measured}, way, baseline)]
    assert not wrong, "\n".join(wrong)
