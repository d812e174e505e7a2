# SPDX-License-Identifier: BSD-3-Clause
"""`kedge submit --build RECIPE IMAGE`: the job builds its image, once, where login nodes must not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import each_role

SITE = ("--site", "local", "--time", "5m")


@pytest.fixture
def shop() -> Iterator[Workshop]:
    for runner in each_role("user"):
        made = Workshop.open(runner)
        made.write("Dockerfile", f"{SHELL}RUN cat /proc/sys/kernel/random/uuid > /made\n")
        yield made
        runner.run("cancel", *SITE[:2], "--all")


def submit(shop: Workshop, *words: str) -> tuple[int, str]:
    done = shop.runner.run("submit", *SITE, *words, cwd=shop.context)
    return done.returncode, done.stdout + done.stderr


def read_outputs(folder: Path) -> list[str]:
    return [path.read_text().split()[-1] for path in sorted(folder.glob("*.out"))]


def test_job_builds_the_image_and_the_next_one_takes_it(shop: Workshop) -> None:
    for _ in range(2):
        status, said = submit(shop, "--wait", "--build", "Dockerfile", "tools.sif", "cat", "/made")
        assert status == 0, said
    first, second = read_outputs(shop.context)
    assert first == second
    assert (shop.context / "tools.sif").exists()


def test_tasks_of_an_array_share_one_build(shop: Workshop) -> None:
    status, said = submit(shop, "--wait", "--array", "0-2", "--build", "Dockerfile", "tools.sif", "cat", "/made")
    assert status == 0, said
    outputs = read_outputs(shop.context)
    assert len(outputs) == 3
    assert len(set(outputs)) == 1


def test_a_build_that_fails_fails_the_job(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN false\n")
    status, said = submit(shop, "--wait", "--build", "Dockerfile", "tools.sif", "cat", "/made")
    assert (status, "exit code 91" in said) == (76, True), said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--build", "gone.def", "x.sif", "true"), "gone.def does not exist"),
        (("--build", "Dockerfile", "docker://x", "true"), "needs a file to write"),
    ],
)
def test_what_cannot_be_built_is_refused_at_once(shop: Workshop, words: tuple[str, ...], message: str) -> None:
    status, said = submit(shop, *words)
    assert status != 0
    assert message in said
