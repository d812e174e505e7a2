# SPDX-License-Identifier: BSD-3-Clause
"""The changes in an ext3 overlay image as a directory.

Only a mount reads that file system, and an ordinary user can mount it in a container alone. So a container copies it:
the image is bound into it read-only, and the host's `cp` keeps the marks of overlays.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kedge.errors import FileProblem, UnsupportedFormat
from kedge.ops.setup.workplace import Workplace
from kedge.posix.confined_paths import remove_tree
from kedge.posix.files import explained
from kedge.runtime.images.image_file import identify
from kedge.runtime.start.step import run_step

_SOURCE, _TARGET = "/mnt", "/srv"
_PACKED = "host:cp"  # an image of that one program


@contextlib.contextmanager
def copy_ext3_overlay(path: Path, workplace: Workplace) -> Iterator[Path]:
    """A directory with the overlay's `upper`, which goes with the block."""
    if identify(str(path)).kind != "ext3":
        raise UnsupportedFormat(
            f"{path} is not an overlay: it is neither a directory nor an ext3 image",
            hint="name the directory or image that was used with --overlay",
        )
    place = workplace.settings.temporary_directory
    with explained(place):
        folder = Path(tempfile.mkdtemp(prefix="kedge-commit-", dir=place))
    try:
        binds = (f"{path.resolve()}:{_SOURCE}:image-src=/,ro", f"{folder}:{_TARGET}")
        words = ["cp", "-a", "--", f"{_SOURCE}/upper", f"{_TARGET}/"]
        done = run_step(_PACKED, words, binds=binds, options=("--containall", "--no-home"))
        if done.status:
            raise FileProblem(f"cannot copy the changes out of {path}: {done.text.strip()[-500:]}")
        yield folder
    finally:
        remove_tree(folder)
