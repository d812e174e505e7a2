# SPDX-License-Identifier: BSD-3-Clause
"""An overlay directory remembers the image it was used with, and no start fails for it."""

from __future__ import annotations

from kedge.container.mounts.overlay_base import read_base, remember_base
from kedge.container.mounts.overlay_options import OverlayLayer


def layer(path, *, writable: bool = True, kind: str = "folder") -> OverlayLayer:
    return OverlayLayer(str(path), kind, writable=writable)


def test_base_is_remembered_and_the_last_one_counts(tmp_path) -> None:
    assert read_base(str(tmp_path)) == ""
    for image in ("/a.sif", "/a.sif", "docker://ubuntu:22.04"):
        remember_base([layer(tmp_path)], image)
        assert read_base(str(tmp_path)) == image
    assert len(list(tmp_path.iterdir())) == 1


def test_base_is_remembered_where_there_is_a_place_for_it(tmp_path) -> None:
    remember_base([layer(tmp_path, writable=False), layer(tmp_path / "x.img", kind="ext3")], "/a.sif")
    assert list(tmp_path.iterdir()) == []
    remember_base([layer(tmp_path / "missing")], "/a.sif")
    (tmp_path / ".kedge-base").mkdir()
    remember_base([layer(tmp_path)], "/a.sif")
    assert read_base(str(tmp_path)) == ""
