# SPDX-License-Identifier: BSD-3-Clause
"""What all attacks share: the programs, compiled once, and a scene with kedge installed in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.containers import USER, make_sandbox
from tests.builders.installed import install
from tests.builders.own_etc import Account, make_etc
from tests.hostile.attacks.scene import Scene, compile_attack, make_scene, put_into
from tests.requirements import require_program, require_root, require_user_namespaces


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
    return Programs(*compile_attack(tmp_path_factory.mktemp("attack-programs")))


@pytest.fixture(scope="package")
def ground(programs: Programs) -> Iterator[Ground]:
    """kedge installed by its user, in an environment whose interpreter is a copy that the user may change."""
    require_user_namespaces()
    uid = os.getuid() or USER
    with make_scene(uid, programs.attack) as scene:
        kedge = install("venv", scene.home, uid)
        scene.watched = (kedge.parent / "python").resolve()
        sandbox = scene.own(put_into(make_sandbox(scene.base / "sandbox"), programs.attack))
        scene.images.append(sandbox)
        yield Ground(scene, kedge, sandbox, pack(sandbox, scene.base / "image.sqsh"))


def give_subordinate_ids(scene: Scene, folder: Path) -> tuple[str, ...]:
    """What root does before the turn of a caller who has subordinate ids."""
    require_root()
    require_program("newuidmap")
    ids = dict.fromkeys(("subuid", "subgid"), "attacked:2000000:65536\n")
    etc = make_etc(folder / "etc", [Account("attacked", scene.uid, scene.home)], **ids)
    return (require_program("unshare"), "--mount", "sh", "-ec", f'mount --bind {etc} /etc; exec "$@"', "sh")


def pack(sandbox: Path, path: Path) -> Path:
    argv = [require_program("mksquashfs"), str(sandbox), str(path), "-quiet", "-no-progress", "-all-root"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    path.chmod(0o644)
    return path
