# SPDX-License-Identifier: BSD-3-Clause
"""What all attacks share: the programs, compiled once, and a scene with an installed kedge whose interpreter is the user's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.containers import USER, make_sandbox
from tests.builders.installed import install_in_venv, write_wheel
from tests.hostile.attacks.scene import Scene, compile_attack, make_scene, put_into
from tests.requirements import open_way, require_program, require_user_namespaces


@dataclass(frozen=True)
class Programs:
    """The attacking program and the loader of a hostile image."""

    attack: Path
    loader: Path


@dataclass(frozen=True)
class Ground:
    """A scene, kedge in it, and the image in its two forms."""

    scene: Scene
    kedge: Path
    sandbox: Path
    packed: Path


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    folder = tmp_path_factory.mktemp("attack-programs")
    open_way(folder)
    return Programs(*compile_attack(folder))


@pytest.fixture(scope="package")
def ground(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """kedge installed by its user, in an environment whose interpreter is a copy that the user may change."""
    require_user_namespaces()
    uid = os.getuid() or USER
    wheels = tmp_path_factory.mktemp("wheels")
    open_way(wheels)
    with make_scene(uid, programs.attack) as scene:
        kedge = install_in_venv(scene.home, uid, write_wheel(wheels))
        scene.watched = (kedge.parent / "python").resolve()
        attack = scene.base / "attack"  # in a place that everybody can reach
        shutil.copy(programs.attack, attack)
        attack.chmod(0o755)
        scene.attack = attack
        sandbox = scene.own(put_into(make_sandbox(scene.base / "sandbox"), programs.attack))
        yield Ground(scene, kedge, sandbox, pack(sandbox, scene.base / "image.sqsh"))


def pack(sandbox: Path, path: Path) -> Path:
    argv = [require_program("mksquashfs"), str(sandbox), str(path), "-quiet", "-no-progress", "-all-root"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    path.chmod(0o644)
    return path
