# SPDX-License-Identifier: BSD-3-Clause
"""Writing to the disk is begun where it can be, and nobody minds where it cannot."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.system.libc import begin_writing


def test_a_stretch_of_a_file_is_begun_and_stays_as_it_is(tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    with (tmp_path / "file").open("w+b") as file:
        file.write(content)
        file.flush()
        begin_writing(file.fileno(), 4096, 1 << 19)
    assert (tmp_path / "file").read_bytes() == content


def test_what_cannot_be_written_ahead_is_no_error() -> None:
    reading, writing = os.pipe()
    begin_writing(writing, 0, 4096)
    os.close(reading)
    os.close(writing)
    begin_writing(writing, 0, 4096)
