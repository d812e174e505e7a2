# SPDX-License-Identifier: BSD-3-Clause
"""Images that mean harm, against kedge as it is installed, from where users stand: what depends on where kedge lies.

Above all its own modules, which lie in the image, too, at their place on this host: they are never loaded, whatever
kedge still needs once it is inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import give_to, make_sandbox
from tests.builders.installed import INSTALLED, InstalledRunner, each_installed
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row
from tests.hostile import test_run_hostile as hostile
from tests.hostile import test_run_reach as reach
from tests.hostile.test_run_hostile import (  # noqa: F401 - run here too, with the runner below
    Canary,
    canary,
    image,
    plain,
    test_environment_of_an_image_acts_only_inside,
)


@pytest.fixture(scope="module", params=INSTALLED, ids=" from ".join)
def runner(request: pytest.FixtureRequest) -> Iterator[InstalledRunner]:
    yield from each_installed(*request.param)


@pytest.fixture(scope="module")
def twins(runner: InstalledRunner) -> str:
    """An image in which every module of kedge, at its place on this host, tells that it was loaded."""
    folder = make_sandbox(runner.folder / "image")
    for path in runner.package.rglob("*.py"):
        twin = folder / path.relative_to("/")
        twin.parent.mkdir(parents=True, exist_ok=True)
        twin.write_text("import os\nos.write(2, b'LOADED FROM THE IMAGE\\n')\nos._exit(77)\n")
    return str(give_to(runner, folder))


@each_row(
    "words",
    [
        ("exec", "--verbose", "--contain", "--no-home", "--home", "/a:/b://c", "IMAGE", "true"),
        ("exec", "--pwd", "/no/such://place", "IMAGE", "true"),
        ("exec", "IMAGE", "no-such-program"),
        ("exec", "--pid", "IMAGE", "/etc/passwd"),
        ("exec", "--json", "IMAGE", "no-such-program"),
        ("exec", "--sharens", "IMAGE", "no-such-program"),
    ],
)
def test_modules_of_the_image_are_not_loaded(runner: InstalledRunner, twins: str, words: tuple[str, ...]) -> None:
    done = runner.run(*(twins if word == "IMAGE" else word for word in words), env={"HOME": "/x://y"})
    assert "LOADED" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 255), done.stderr
    assert done.returncode == 0 or "kedge:" in done.stderr or '"error"' in done.stdout


def test_modules_of_an_instance_are_not_loaded(runner: InstalledRunner, twins: str) -> None:
    runner.read("instance", "start", twins, "hostile")
    try:
        for words in (("no-such-program",), ("/etc/passwd",)):
            done = runner.run("exec", "--verbose", "instance://hostile", *words)
            assert (done.returncode, "LOADED" in done.stderr, "Traceback" in done.stderr) == (255, False, False)
    finally:
        runner.run("instance", "stop", "hostile")


@EVERY
@each_row("link", ["{canary}", "/proc/self/cwd"])
def test_links_lead_nowhere(runner: InstalledRunner, plain: Path, link: str, is_every: bool) -> None:  # noqa: F811
    """Where kedge lies matters to no place: the installations share them out."""
    hostile.try_link(runner, plain, link, hostile.PLACES[:: 1 if is_every else 4][runner.number % 2 :])


def test_working_folder_of_an_image_is_in_the_image(runner: InstalledRunner, canary: Canary) -> None:  # noqa: F811
    hostile.try_working_folder(runner, canary, ("/proc/self/fd/3", "/proc/1/cwd")[runner.number % 2])


@EVERY
def test_the_hosts_tree_is_gone(runner: InstalledRunner, plain: Path, is_every: bool) -> None:  # noqa: F811
    """Mounts are made alike wherever kedge lies: the installations share the ways out."""
    for way in reach.WAYS if is_every else reach.WAYS[runner.number :: len(INSTALLED)]:
        reach.look_for_the_hosts_tree(runner, str(plain), way)
