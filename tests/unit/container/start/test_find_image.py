# SPDX-License-Identifier: BSD-3-Clause
"""A root that is held: made ready where it is missing, and again where others remove it first."""

from __future__ import annotations

import pytest

from kedge.container import start_container as find_image
from kedge.container.mounting import Root
from kedge.errors import FileProblem


def test_a_root_that_is_held_or_mounted_needs_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter((-1, -1, 7))
    made: list[Root] = []
    monkeypatch.setattr(find_image, "hold_image", lambda folder: next(answers))
    root = find_image.find_held(lambda: Root("folder", "unpacked", "/node/root"), made.append, "image.sif")
    assert (root.folder, len(made)) == ("/node/root", 2)
    monkeypatch.setattr(find_image, "hold_image", lambda folder: pytest.fail("nothing is to be held"))
    assert (
        find_image.find_held(lambda: Root("squashfuse", "mounted"), lambda root: None, "image.sif").way == "squashfuse"
    )


def test_a_root_that_is_always_gone_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Root] = []
    monkeypatch.setattr(find_image, "hold_image", lambda folder: -1)
    with pytest.raises(FileProblem, match="was unpacked 3 times") as caught:
        find_image.find_held(lambda: Root("folder", "unpacked", "/node/root"), made.append, "image.sif")
    assert len(made) == 3
    assert "KEDGE_NODEDIR" in str(caught.value.hint)
