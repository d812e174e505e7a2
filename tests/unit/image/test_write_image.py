# SPDX-License-Identifier: BSD-3-Clause
"""How many processes make the files of a directory: some, where there are threads for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kedge.base.image_format import ImageFormat
from kedge.image import write_image
from kedge.image.write_image import WriteOptions


class Seen(Exception):
    """What the directory's writer was made with."""


@pytest.mark.parametrize(("threads", "writers"), [(1, 0), (2, 2), (4, 4), (64, 4)])
def test_a_directory_has_writers_where_there_are_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, threads: int, writers: int
) -> None:
    def make(_target: Path, **named: Any) -> None:
        raise Seen(named["writers"])

    monkeypatch.setattr(write_image, "SandboxSink", make)
    image: Any = None  # nothing is read before
    with pytest.raises(Seen) as seen:
        write_image.write_image(tmp_path / "box", ImageFormat.SANDBOX, image, WriteOptions(threads=threads))
    assert seen.value.args == (writers,)
