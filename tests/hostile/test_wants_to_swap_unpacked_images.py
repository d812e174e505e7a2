# SPDX-License-Identifier: BSD-3-Clause
"""Another user wants their tree to be the root of my container, and renames the folder of unpacked images between the
look at its owner and its use. Where others may rename, no image is unpacked.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to, make_sandbox
from tests.requirements import require_program, require_root
from tests.wording import assert_says


@pytest.fixture(scope="module")
def image(runner: Runner) -> str:
    folder, path = make_sandbox(runner.folder / "image"), runner.folder / "image.sqsh"
    subprocess.run(
        [require_program("mksquashfs"), give_to(runner, folder), path, "-quiet", "-no-progress", "-all-root"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    path.chmod(0o644)
    return str(path)


def start(runner: Runner, image: str, place: Path) -> subprocess.CompletedProcess[str]:
    words = ("exec", "--root-from", "unpack", image, "true")
    return runner.run(*words, env={"KEDGE_NODEDIR": str(place)})


def test_a_place_that_everybody_can_replace_is_refused(runner: Runner, image: str) -> None:
    above = runner.folder / "open"
    (above / "deeper").mkdir(parents=True)
    give_to(runner, above)
    above.chmod(0o777)
    done = start(runner, image, above / "deeper/node")
    assert done.returncode == 255
    assert "world-writable and not sticky" in done.stderr
    above.chmod(0o1777)
    assert start(runner, image, above / "deeper/node").returncode == 0
    above.chmod(0o777)
    assert start(runner, image, above / "deeper/node").returncode == 255  # also where the image is there already


def test_a_place_that_a_group_can_replace_is_refused(runner: Runner, image: str) -> None:
    """A project's directory: each of its members can rename what is in it, whoever owns that."""
    require_root()
    above = runner.folder / "project"
    above.mkdir()
    (above / "node").mkdir(mode=0o700)
    give_to(runner, above / "node")
    for owner in (0, runner.uid):
        os.chown(above, owner, 65533)
        above.chmod(0o2775)
        done = start(runner, image, above / "node")
        assert done.returncode == 255
        assert_says(done.stderr, "image/group-writable-not-sticky")
        above.chmod(0o3775)
        assert start(runner, image, above / "node").returncode == 0
    os.chown(above, runner.uid, runner.uid)
    above.chmod(0o775)
    assert start(runner, image, above / "node").returncode == 0  # the user's own group, on systems that give each one


def test_a_place_in_the_folder_of_another_user_is_refused(runner: Runner, image: str) -> None:
    require_root()
    above = runner.folder / "theirs"
    above.mkdir()
    (above / "node").mkdir(mode=0o700)
    give_to(runner, above / "node")
    os.chown(above, 65533, 65533)
    done = start(runner, image, above / "node")
    assert done.returncode == 255
    assert_says(done.stderr, "image/belongs-user-who-could-replace", 65533)
