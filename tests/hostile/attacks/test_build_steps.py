# SPDX-License-Identifier: BSD-3-Clause
"""The same attacks from recipes: a step of a build reaches nothing but the image, the network and its mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.old_kernels import play_refusals
from tests.hostile.attacks.conftest import Ground, give_subordinate_ids
from tests.hostile.attacks.judging import list_reached
from tests.hostile.attacks.scene import Measured
from tests.requirements import require_program

PROGRAM = Path(__file__).parents[2] / "programs/run_an_attacking_step.py"
# A step has what the strictest start has
LIKE = "--fakeroot --containall"


def attack(ground: Ground, way: str, refused: str, name: str, prefix: tuple[str, ...] = ()) -> Measured:
    scene = ground.scene
    changes = scene.own(_make(scene.base / name))
    program = scene.base / "step.py"
    program.write_text(PROGRAM.read_text())
    words = [str(ground.kedge.parent / "python"), str(program), str(ground.sandbox), str(changes), way]
    words += [f"{scene.base}/readonly", f"{scene.base}/mountpoint", "attack"]
    played = play_refusals(scene.base, refused, "in children", path="") if refused else {}
    return scene.start(words, scene.project, played, prefix)


def _make(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("way", ["step", "script"])
@pytest.mark.parametrize("refused", ["", "overlay"])
def test_a_step_of_a_build_reaches_nothing(ground: Ground, way: str, refused: str) -> None:
    require_program("fuse-overlayfs")
    measured = attack(ground, way, refused, f"changes-{way}-{refused}")
    assert measured.is_whole, (measured.status, measured.errors)
    wrong = list_reached({"step": measured}, LIKE)
    assert not wrong, "\n".join(wrong)


def test_a_step_with_the_users_of_the_image_reaches_nothing(ground: Ground, tmp_path: Path) -> None:
    """Its programs may be set-user-ID, and its users are subordinate ids of the caller's."""
    measured = attack(ground, "users", "", "changes-users", give_subordinate_ids(ground.scene, tmp_path))
    assert measured.is_whole, (measured.status, measured.errors)
    wrong = list_reached({"step": measured}, LIKE)
    assert not wrong, "\n".join(wrong)
