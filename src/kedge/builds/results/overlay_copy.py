# SPDX-License-Identifier: BSD-3-Clause
"""The changes in an overlay that this process cannot read, copied by a container that can.

An ordinary user can mount an ext3 image in a container alone; and what `--fakeroot` with subordinate ids wrote belongs
to users that are root's to read in such a container only. The host's `cp` keeps the marks of overlays.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kedge.container.start.step import run_step
from kedge.errors import FileProblem, UnsupportedFormat
from kedge.image.image_file import identify
from kedge.image.workplace import Workplace
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained

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
    source = f"{path.resolve()}:{_SOURCE}:image-src=/,ro"
    with _copy(source, workplace, ("--containall",), ("-a",)) as folder:
        yield folder


@contextlib.contextmanager
def copy_foreign_overlay(path: Path, workplace: Workplace) -> Iterator[Path]:
    """Yield a copy of a directory in which files belong to subordinate ids; in the copy all are ours."""
    options = ("--containall", "--fakeroot")
    with _copy(f"{path.resolve()}:{_SOURCE}:ro", workplace, options, ("-a", "--no-preserve=ownership")) as folder:
        yield folder


@contextlib.contextmanager
def _copy(source: str, workplace: Workplace, options: tuple[str, ...], flags: tuple[str, ...]) -> Iterator[Path]:
    place = workplace.settings.temporary_directory
    with explained(place):
        folder = Path(tempfile.mkdtemp(prefix="kedge-commit-", dir=place))
    try:
        words = ["cp", *flags, "--", f"{_SOURCE}/upper", f"{_TARGET}/"]
        done = run_step(_PACKED, words, binds=(source, f"{folder}:{_TARGET}"), options=(*options, "--no-home"))
        if done.status:
            what = source.partition(":")[0]
            raise FileProblem(f"cannot copy the changes out of {what}: {done.text.strip()[-500:]}")
        yield folder
    finally:
        remove_tree(folder)
