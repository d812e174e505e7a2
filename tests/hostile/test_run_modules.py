# SPDX-License-Identifier: BSD-3-Clause
"""Modules of kedge that lie in an image are never loaded, whatever kedge still needs once it is inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kedge
from tests.builders.containers import Runner, each_role, give_to, make_sandbox


@pytest.fixture(scope="module", params=["user", "root"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(request.param)


@pytest.fixture(scope="module")
def package() -> Path:
    """Where the kedge that is run has its modules."""
    return Path(kedge.__file__).parent


@pytest.fixture(scope="module")
def image(runner: Runner, package: Path) -> str:
    """An image in which every module of kedge, at its place on this host, tells that it was loaded."""
    folder = make_sandbox(runner.folder / "image")
    for path in package.rglob("*.py"):
        twin = folder / path.relative_to("/")
        twin.parent.mkdir(parents=True, exist_ok=True)
        twin.write_text("import os\nos.write(2, b'LOADED FROM THE IMAGE\\n')\nos._exit(77)\n")
    return str(give_to(runner, folder))


@pytest.mark.parametrize(
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
def test_modules_of_the_image_are_not_loaded(runner: Runner, image: str, words: tuple[str, ...]) -> None:
    done = runner.run(*(image if word == "IMAGE" else word for word in words), env={"HOME": "/x://y"})
    assert "LOADED" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 255), done.stderr
    assert done.returncode == 0 or "kedge:" in done.stderr or '"error"' in done.stdout


def test_modules_of_an_instance_are_not_loaded(runner: Runner, image: str) -> None:
    runner.read("instance", "start", image, "hostile")
    try:
        for words in (("no-such-program",), ("/etc/passwd",)):
            done = runner.run("exec", "--verbose", "instance://hostile", *words)
            assert (done.returncode, "LOADED" in done.stderr, "Traceback" in done.stderr) == (255, False, False)
    finally:
        runner.run("instance", "stop", "hostile")
