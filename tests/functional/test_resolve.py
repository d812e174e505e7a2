# SPDX-License-Identifier: BSD-3-Clause
"""What is asked of a registry for a tag that is known already: not what Docker Hub counts as a pull."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.base.reference import Reference
from kedge.image.sources.resolve import resolve
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.fakes.http_server import Reply
from tests.fakes.registry import FakeRegistry


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", "/dev/null")
    return Workplace(Settings.load({}, {"HOME": str(tmp_path)}))


def list_asked(registry: FakeRegistry) -> list[str]:
    return [each.method for each in registry.server.seen("/manifests/")]


@pytest.mark.parametrize("head", [200, 403, 405])
def test_resolve_of_a_known_tag_counts_as_a_pull_only_when_it_changed(tmp_path, workplace, head):
    with FakeRegistry() as registry, Store(tmp_path / "store") as store:
        first = registry.add_image("team/app", "1.0", [b"layer"])
        reference = Reference.parse(f"docker://{registry.host}/team/app:1.0")
        assert resolve(reference, workplace, store).digest == first
        assert list_asked(registry) == ["GET"]
        if head != 200:
            registry.server.fail("HEAD", times=9, reply=Reply(head))
        assert resolve(reference, workplace, store).digest == first
        assert list_asked(registry) == ["GET", "HEAD"] + (["GET"] if head != 200 else [])
        second = registry.add_image("team/app", "1.0", [b"another layer"])
        assert resolve(reference, workplace, store).digest == second
