# SPDX-License-Identifier: BSD-3-Clause
"""The store keeps away from a quota: a quarter of it unless somebody chose a cap, and a warning near its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.base.progress import Silent
from kedge.image import cache
from kedge.system.host.space import Space
from kedge.system.settings import Settings
from tests.builders.rows import each_row

GIB = 1 << 30


class Warnings(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def warn(self, message: str) -> None:
        self.said.append(message)


@each_row(
    ("chosen", "space", "outcome"),
    [
        ({}, (9 * GIB, 10 * GIB), (int(2.5 * GIB), False)),
        ({}, (GIB // 2, 10 * GIB), (int(2.5 * GIB), True)),
        ({"KEDGE_CACHE_LIMIT": "5GiB"}, (9 * GIB, 10 * GIB), (5 * GIB, False)),
        ({}, (None, None), (None, False)),
    ],
)
def test_store_respects_a_quota(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chosen: dict[str, str],
    space: tuple[int | None, int | None],
    outcome: tuple[int | None, bool],
) -> None:
    monkeypatch.setattr(cache, "free_space", lambda path: Space(path, 100 * GIB, 200 * GIB, *space))
    settings = Settings.load({}, {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "c"), **chosen})
    store, progress = cache.open_store(settings), Warnings()
    limit, warns = outcome
    expected = store.limit if limit is None else limit
    cache.respect_quota(store, settings, progress)
    assert store.limit == expected
    assert bool(progress.said) == warns


def test_limit_of_a_shared_store_can_be_read_by_all_who_share_it(tmp_path: Path) -> None:
    settings = Settings.load({"cache_directory": str(tmp_path / "store"), "shared_cache": "yes"}, {})
    umask = os.umask(0o002)
    try:
        cache.limit_cache(settings, GIB)
    finally:
        os.umask(umask)
    assert (tmp_path / "store" / "limit").stat().st_mode & 0o777 == 0o664
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o775
