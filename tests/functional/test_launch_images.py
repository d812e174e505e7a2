# SPDX-License-Identifier: BSD-3-Clause
"""Images of a launch that are named by a reference: fetched once for all ranks, and one and the same on all nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import ImageNotFound
from kedge.launch.prepare import make_image_ready
from kedge.launch.request import LaunchRequest
from kedge.system.settings import Settings
from tests.builders.containers import Runner, each_role
from tests.builders.images import add_shell_image
from tests.fakes.registry import FakeRegistry

SHOW = 'read x </version; echo "$RANK has $x"'


@pytest.fixture
def runner() -> Iterator[Runner]:
    yield from each_role("user", is_warm=True)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        add_shell_image(made, "team/app:1", {"version": b"one\n"})
        yield made


def test_one_request_for_all_ranks_of_a_launch(runner: Runner, registry: FakeRegistry) -> None:
    image = f"docker://{registry.host}/team/app:1"
    for option in ("auto", "auto", "newer"):
        registry.server.log.clear()
        done = runner.run("launch", "--tasks", "4", "--ranks", "--pull", option, image, "sh", "-c", SHOW)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == [f"{rank} has one" for rank in range(4)]
        assert len(registry.server.seen("/manifests/")) <= 1
        assert len(registry.server.seen("/blobs/")) <= 2


def test_an_image_that_is_missing_is_said_once_and_nothing_starts(runner: Runner, registry: FakeRegistry) -> None:
    done = runner.run("launch", "--tasks", "4", "--ranks", f"docker://{registry.host}/team/none:1", "true")
    assert done.returncode != 0
    assert done.stderr.count("team/none") < 4, done.stderr
    assert "rank" not in done.stderr


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A job of PBS, and places of its own."""
    nodes = tmp_path / "nodes"
    nodes.write_text("n1\nn2\n")
    environ = {
        **{"PBS_JOBID": "1.server", "PBS_NODEFILE": str(nodes), "PBS_ENVIRONMENT": "PBS_BATCH"},
        **{"KEDGE_CACHEDIR": str(tmp_path / "cache"), "KEDGE_NODEDIR": str(tmp_path / "node"), "HOME": str(tmp_path)},
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


def test_all_nodes_get_the_image_that_the_tag_meant_at_the_launch(
    registry: FakeRegistry, two_nodes: dict[str, str]
) -> None:
    digest = add_shell_image(registry, "team/app:1", {"version": b"two\n"})
    settings = Settings.load({}, two_nodes)
    request = LaunchRequest(f"docker://{registry.host}/team/app:1", ("true",), ("--cleanenv",))
    ready = make_image_ready(request, settings, two_nodes, pytest.fail)
    assert ready.image == f"docker://{registry.host}/team/app:1@{digest}"
    assert ready.options == ("--cleanenv", "--pull", "missing")
    add_shell_image(registry, "team/app:1", {"version": b"three\n"})
    registry.server.log.clear()
    assert make_image_ready(ready, settings, two_nodes, pytest.fail).image == ready.image
    assert not registry.server.log, "it is on this node"
    missing = LaunchRequest(f"docker://{registry.host}/team/none:1", ("true",))
    with pytest.raises(ImageNotFound):
        make_image_ready(missing, settings, two_nodes, pytest.fail)


def test_files_stay_as_they_are(two_nodes: dict[str, str]) -> None:
    for image in ("app.sif", "./docker:x", "file:app.sif", "instance://one"):
        request = LaunchRequest(image, ("true",))
        assert make_image_ready(request, Settings.load({}, two_nodes), two_nodes, pytest.fail) is request
