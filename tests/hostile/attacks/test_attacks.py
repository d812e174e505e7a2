# SPDX-License-Identifier: BSD-3-Clause
"""Every attack against every way of starting a container, as an ordinary user who stands where users stand.

One start tries all of them: nothing may be reached but what the list says is open by design, and that must be.
"""

from __future__ import annotations

import pytest

from tests.builders.old_kernels import play_refusals
from tests.hostile.attacks.attack import COLUMNS, OPEN, WAYS
from tests.hostile.attacks.attack_list import ATTACKS
from tests.hostile.attacks.conftest import Ground
from tests.hostile.attacks.scene import Measured
from tests.requirements import require_program

# How the root is made: the image's form, the flags, and what the kernel is played to refuse
BUILDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "overlay": ("sandbox", (), ""),
    "underlay": ("sandbox", ("--underlay",), ""),
    "fuse-overlayfs": ("sandbox", (), "overlay"),
    "squashfuse": ("packed", ("--root-from", "squashfuse"), ""),
    "unpacked": ("packed", ("--root-from", "unpack"), ""),
}


def attack(ground: Ground, way: str, build: str, where: str = "project", prefix: tuple[str, ...] = ()) -> Measured:
    scene = ground.scene
    form, flags, refused = BUILDS[build]
    image = str(ground.sandbox if form == "sandbox" else ground.packed)
    binds = ("--bind", f"{scene.base}/readonly:/data:ro", "--bind", f"{scene.base}/mountpoint:/mountpoint")
    words = [str(ground.kedge), "exec", *WAYS[way], *flags, *binds, "--env", "ATTACK_FLAG=canary-flag", image]
    cwd = {"home": scene.home, "project": scene.project, "tmp": "/tmp"}[where]
    played = play_refusals(scene.base, refused, path="") if refused else {}
    return scene.start([*words, "/bin/attack", "attack"], cwd, played, prefix)


def judge(measured: Measured, way: str) -> list[str]:
    """Attacks that reached what they must not."""
    reached = []
    for each in ATTACKS:
        found = [text for sign in each.signs for text in measured.details.get(sign, [])]
        if found and each.expect(way) != OPEN:
            reached.append(f"{each.wants}: {found[0]}")
    return reached


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_reached_but_what_is_open_by_design(ground: Ground, way: str, build: str) -> None:
    if build in ("squashfuse", "fuse-overlayfs"):
        require_program(build)
    measured = attack(ground, way, build)
    assert measured.is_whole, measured.errors
    assert judge(measured, way) == []
