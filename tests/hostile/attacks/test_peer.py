# SPDX-License-Identifier: BSD-3-Clause
"""The same attacks against the real Apptainer: the threat model says beside ours what was measured of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders.apptainer import PEER_USER
from tests.builders.containers import make_sandbox
from tests.hostile.attacks.attack import COLUMNS, HELD, NOT_RUN, OPEN
from tests.hostile.attacks.attack_list import ATTACKS
from tests.hostile.attacks.conftest import Ground, Programs, pack
from tests.hostile.attacks.peer import PeerScene, make_command
from tests.hostile.attacks.scene import Measured, make_scene, put_into
from tests.requirements import require_peer

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def peer(programs: Programs) -> Iterator[Ground]:
    require_peer()
    with make_scene(PEER_USER, programs.attack, PeerScene) as scene:
        sandbox = scene.own(put_into(make_sandbox(scene.base / "sandbox"), programs.attack))
        scene.images.append(sandbox)
        yield Ground(scene, scene.attack, sandbox, pack(sandbox, scene.base / "image.sqsh"))


@pytest.fixture(scope="module")
def baseline(peer: Ground) -> Measured:
    """The same without any container."""
    return peer.scene.start([str(peer.scene.attack), "attack"], peer.scene.project)


@pytest.mark.parametrize("column", COLUMNS)
def test_apptainer_does_what_the_threat_model_says(peer: Ground, baseline: Measured, column: str) -> None:
    scene = peer.scene
    number = list(COLUMNS).index(column)
    measured = [
        scene.start(make_command(scene, COLUMNS[column], image), scene.project) for image in (peer.sandbox, peer.packed)
    ]
    assert [one.errors for one in measured if not one.is_whole] == []
    reached = frozenset[str]().union(*(one.signs for one in measured))
    wrong = []
    for each in ATTACKS:
        expected = each.expect_apptainer()[number]
        found = OPEN if reached.intersection(each.signs) else HELD
        if expected in (NOT_RUN, found) or (expected == OPEN and not baseline.signs.intersection(each.signs)):
            continue
        wrong.append(f"{each.wants}: {found}, and not {expected}")
    assert not wrong, "\n".join(wrong)
