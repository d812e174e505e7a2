# SPDX-License-Identifier: BSD-3-Clause
"""The options of fuse2fs: version 3 of libfuse refuses some that version 2 needs."""

from __future__ import annotations

from kedge.container.mounts.ext3 import ExtImage, choose_options
from tests.builders.rows import each_row


@each_row(("library", "has_old"), [(b"libfuse.so.2", True), (b"libfuse3.so.4", False)])
def test_options_are_those_that_the_library_knows(tmp_path, library: bytes, has_old: bool) -> None:
    program = tmp_path / "fuse2fs"
    program.write_bytes(b"\x7fELF" + library + b"\0norecovery\0")
    options = choose_options(str(program), ExtImage("/x.img", 4096, 0, writable=False)).split(",")
    assert {"ro", "norecovery", "offset=4096", "fakeroot"} <= {*options}
    assert ("use_ino" in options, "big_writes" in options) == (has_old, has_old)
