# SPDX-License-Identifier: BSD-3-Clause
"""Pulls and builds that get a signal at any point: they end, say so once, and leave neither process nor file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import layers as build
from tests.builders.images import kedge, make_config, noise, rich_layers
from tests.fakes.registry import FakeRegistry
from tests.requirements import REPOSITORY, require_user_namespaces

# Where signals were lost: locks of Python's own, starts of processes, and what follows a download.
PLACES = "/threading.py,/contextlib.py,/subprocess.py,"
PLACES += "/kedge/system/,/kedge/image/store/,/kedge/image/layers/,/kedge/builds/"
STALLS = 300_000  # bytes of a layer that stands still
SEED = 26


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        tars = rich_layers()
        made.add_image("team/small", "1", [build.compress(tar) for tar in tars], make_config(tars))
        tars = [build.layer(build.file(f"data{number}", noise(400_000, f"any {number}"))) for number in range(4)]
        slow = [build.compress(tar) for tar in tars]
        made.add_image("team/slow", "1", slow, make_config(tars))
        for digest, data in made.blobs.items():
            if data in slow:
                made.server.fail(f"GET .*/blobs/{digest}", times=10**9, stall_at=STALLS)
        yield made


def write_words(case: str, registry: FakeRegistry, folder: Path) -> list[str]:
    if case == "build":
        require_user_namespaces()
        kedge("pull", folder / "base.sif", f"docker://{registry.host}/team/small:1", cache=folder / "c")
        recipe = folder / "Dockerfile"
        recipe.write_text(f"FROM {folder}/base.sif\nRUN true\nRUN echo a >/a\n")
        return ["build", "{folder}/x.sif", str(recipe)]
    small, slow = f"docker://{registry.host}/team/small:1", f"docker://{registry.host}/team/slow:1"
    return {
        "pull": ["pull", "--threads", "2", "{folder}/x.sif", small],
        "stalled pull": ["pull", "{folder}/x.sif", slow],
        "sandbox": ["pull", "--threads", "4", "--sandbox", "{folder}/x", small],
    }[case]


def run_rounds(case: str, rounds: int, registry: FakeRegistry, folder: Path) -> int:
    """How many signals were sent; all that went wrong is the failure's text."""
    (folder / "rounds").mkdir()
    words = write_words(case, registry, folder)
    program = [sys.executable, "-m", "tests.programs.signal_rounds", str(folder / "rounds"), str(rounds), str(SEED)]
    done = subprocess.run(
        [*program, PLACES, *words], cwd=REPOSITORY, timeout=7200, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *wrong, last = done.stdout.splitlines()
    assert not wrong, "\n".join(wrong)
    found = re.fullmatch(r"\d+ points, (\d+) signals", last)
    assert found, last
    return int(found[1])


@pytest.mark.parametrize("case", ["pull", "build"])  # of the others: test_pull_stalls.py, test_pull_processes.py
def test_a_signal_at_some_points(case: str, registry: FakeRegistry, tmp_path: Path) -> None:
    assert run_rounds(case, 3, registry, tmp_path) > 1


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("case", ["pull", "stalled pull", "sandbox", "build"])
def test_a_signal_at_every_point(case: str, registry: FakeRegistry, tmp_path: Path) -> None:
    assert run_rounds(case, 2000, registry, tmp_path) > 1500
