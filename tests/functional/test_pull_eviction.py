# SPDX-License-Identifier: BSD-3-Clause
"""A pull of what is stored, while somebody else makes the store smaller. Needs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.base.platform import Platform
from kedge.base.reference import Reference
from kedge.base.setting_values import LinkMode
from kedge.image import pull as pulling
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders import layers as build
from tests.builders.images import make_config
from tests.fakes.registry import FakeRegistry


def test_pull_of_a_stored_image_keeps_it_from_being_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", "/dev/null")
    settings = Settings.load({}, {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "c")})
    real, tar = pulling._read_platform, build.layer(build.file("etc/motd", b"hello"))
    with FakeRegistry() as registry:
        registry.add_image("team/app", "1", [build.compress(tar)], make_config([tar]))
        reference = Reference.parse(f"docker://{registry.host}/team/app:1")
        workplace = Workplace(replace(settings, link_mode=LinkMode.COPY))  # so that the store has one that can go
        pulling.pull(pulling.PullRequest(reference, tmp_path / "a.sif"), workplace)
        (tmp_path / "a.sif").rename(tmp_path / "moved.sif")

        def read(path: Path) -> Platform:
            Store(tmp_path / "c", limit=0).evict()
            return real(path)

        monkeypatch.setattr(pulling, "_read_platform", read)
        again = pulling.pull(pulling.PullRequest(reference, tmp_path / "b.sif"), workplace)
        assert again.how in ("copy", "reflink")
        assert (tmp_path / "b.sif").read_bytes() == (tmp_path / "moved.sif").read_bytes()
