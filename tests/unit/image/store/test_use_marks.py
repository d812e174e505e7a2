# SPDX-License-Identifier: BSD-3-Clause
"""Marks of use: gone with whoever made them, also when a signal comes while they are made or taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.image.store.layout import Layout
from kedge.image.store.lease import PULSE
from kedge.image.store.use_marks import Use, find_used


class Ended(BaseException):
    """As a signal raises it."""


def end(*_: object) -> int:
    raise Ended


def test_a_mark_is_there_while_it_is_used(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with Use(layout, "abc"):
        assert find_used(layout) == {"abc"}
    assert find_used(layout) == set()


def test_a_signal_while_a_mark_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PULSE, "add", end)
    with pytest.raises(Ended):
        Use(Layout(tmp_path), "abc")
    assert list((tmp_path / "using").iterdir()) == []


def test_a_signal_while_a_mark_is_taken_away_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use = Use(Layout(tmp_path), "abc")
    monkeypatch.setattr(PULSE, "remove", end)
    with pytest.raises(Ended):
        use.end()
    assert list((tmp_path / "using").iterdir()) == []
