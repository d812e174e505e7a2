# SPDX-License-Identifier: BSD-3-Clause
"""A hostile program that waits in a container for whoever enters: it looks at newcomers while they are still kedge.

Programs in one container share it: what they are given they show. What kedge holds on its way in they must not see.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.builders.containers import as_user, make_sandbox
from tests.hostile.attacks.attack import WAYS
from tests.hostile.attacks.conftest import Ground, Programs
from tests.hostile.attacks.judging import list_reached
from tests.hostile.attacks.scene import FLAG, Scene, put_into, read_reports

JOINS = 3
# Without the caller's variables: those of the program may be read by those it shares a container with
ENTER = ("exec", "--cleanenv")
OUT = ("--no-mount", "tmp,home,cwd")


@pytest.fixture(scope="module")
def waiting(ground: Ground, programs: Programs) -> Iterator[Path]:
    """An image whose start script waits for newcomers."""
    scene = ground.scene
    image = put_into(make_sandbox(scene.base / "waiting"), programs.attack)
    script = image / ".singularity.d/startscript"
    script.write_text('#!/bin/sh\nexec /bin/attack watch "$@"\n')
    script.chmod(0o755)
    yield scene.own(image)
    shutil.rmtree(image)


def join_often(scene: Scene, enter: list[str], read: Callable[[], str], env: Mapping[str, str] | None = None) -> str:
    """Let many come into the container in which one waits, and the last one end the waiting; returns all it said."""
    found = wait_for(read, r'"attack": "ready", .* "found": "(\d+)"')
    for _ in range(JOINS):
        done = scene.run(*enter, "busybox", "sleep", "0.2", env=env)  # longer than a look at all takes
        assert done.returncode == 0, done.stderr
    done = scene.run(*enter, "busybox", "kill", "-USR1", found, env=env)
    assert done.returncode == 0, done.stderr
    assert int(wait_for(read, r'"attack": "seen", .* "found": "(\d+)"')) >= 2  # on a busy machine it looks seldom
    return read()


def wait_for(read: Callable[[], str], pattern: str) -> str:
    for _ in range(200):
        found = re.search(pattern, read())
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"nothing like {pattern} in: {read()}")


def list_shown(reports: str) -> list[str]:
    found = read_reports(reports)
    return [f"{name}: {texts[0]}" for name, texts in found.items() if name.startswith(("newcomer", "program"))]


# Without --pid, which instances always have. With --contain alone newcomers come in as with --containall
@pytest.mark.parametrize("way", [way for way in WAYS if "--pid" not in way and not way.endswith("--contain")])
def test_newcomers_to_an_instance_show_nothing_of_the_host(ground: Ground, waiting: Path, way: str) -> None:
    scene = ground.scene
    name = f"waiting-{uuid.uuid4().hex[:8]}"
    scene.mend_interpreter()
    start = ("instance", "start", *WAYS[way], *OUT, str(waiting), name, *scene.arguments({}))
    started = scene.run(ground.kedge, *start)
    assert started.returncode == 0, started.stderr
    try:
        log = next((scene.home / ".local/state/kedge/instances").rglob(f"{name}.out"))
        enter = [str(ground.kedge), *ENTER, "--env", f"ATTACK_FLAG={FLAG}", f"instance://{name}"]
        reports = join_often(scene, enter, lambda: log.read_text(errors="replace"))
    finally:
        scene.run(ground.kedge, "instance", "stop", name)
    wrong = list_shown(reports)
    assert not wrong, "\n".join(wrong)
    assert scene.mend_interpreter() == []


@pytest.mark.parametrize("flags", [(), ("--pid",), ("--contain",), ("--fakeroot",)], ids=" ".join)
def test_ranks_that_join_show_nothing_of_the_host(ground: Ground, waiting: Path, flags: tuple[str, ...]) -> None:
    scene = ground.scene
    launch = {"PMIX_NAMESPACE": uuid.uuid4().hex}  # by this ranks know each other
    scene.mend_interpreter()
    enter = [str(ground.kedge), *ENTER, "--sharens", *OUT, *flags, str(waiting)]
    log = scene.base / "watch.out"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            as_user(scene.uid, [*enter, "/bin/attack", "watch", *scene.arguments({})]),
            stdout=file,
            env=scene.variables(launch),
            cwd=scene.project,
        ) as first,
    ):
        reports = join_often(scene, enter, lambda: log.read_text(errors="replace"), launch)
    assert first.returncode == 0
    wrong = list_shown(reports)
    assert not wrong, "\n".join(wrong)
    assert scene.mend_interpreter() == []


@pytest.mark.parametrize("way", [way for way in WAYS if "--pid" not in way])
def test_a_program_that_enters_an_instance_reaches_no_more_than_one_that_it_starts(ground: Ground, way: str) -> None:
    scene = ground.scene
    name = f"entered-{uuid.uuid4().hex[:8]}"
    binds = ("--bind", f"{scene.base}/readonly:/data:ro", "--bind", f"{scene.base}/mountpoint:/mountpoint")
    started = scene.run(ground.kedge, "instance", "start", *WAYS[way], *binds, ground.sandbox, name)
    assert started.returncode == 0, started.stderr
    clean = ("--cleanenv",) if "--containall" in way else ()  # each program of an instance says this for itself
    words = [str(ground.kedge), "exec", *clean, "--env", f"ATTACK_FLAG={FLAG}", f"instance://{name}"]
    try:
        measured = scene.start([*words, "/bin/attack", "attack"], scene.project)
    finally:
        scene.run(ground.kedge, "instance", "stop", name)
    assert measured.is_whole, measured.errors
    wrong = list_reached({"entered": measured}, way)
    assert not wrong, "\n".join(wrong)
