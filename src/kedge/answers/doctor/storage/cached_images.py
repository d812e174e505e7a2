# SPDX-License-Identifier: BSD-3-Clause
"""Images in the cache, and those that it gave away: whether a version of kedge that had a fault wrote them wrongly.

Only tables are read, of the newest images, up to so many inodes and seconds: contents may be many gigabytes.
"""

from __future__ import annotations

import stat
import time
from pathlib import Path

from kedge.answers.doctor.finding import OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.counting import count_things
from kedge.errors import CorruptImage, HostileImage, KedgeError
from kedge.image.formats.check_file import check_file
from kedge.image.formats.squashfs.check_image import CheckOptions
from kedge.image.store.deliveries import read_delivery

_MOST_INODES = 200_000  # of all images together: about a third of a second
_MOST_IMAGES = 200
_SECONDS = 0.7


def check_cached_images(surroundings: Surroundings) -> list[Finding]:
    """Look at the tables of images."""
    paths = list_images(surroundings.settings.cache_directory)
    end = time.monotonic() + _SECONDS * surroundings.patience
    left, broken, looked = _MOST_INODES, [], 0
    for path in paths[:_MOST_IMAGES]:
        if time.monotonic() > end:
            break
        try:
            with path.open("rb") as file:
                found = check_file(file, str(path), CheckOptions(heads=0, most=left))
            left -= found.inodes if found is not None else 0
        except (CorruptImage, HostileImage) as problem:
            broken.append(problem.message)
        except (KedgeError, OSError):  # too large, or gone meanwhile
            continue
        looked += 1
    return [judge_images(broken, looked, len(paths))]


def list_images(cache: Path) -> list[Path]:
    """The images of a cache and those that users have from it, the newest first."""
    given = [read_delivery(path) for path in (cache / "records").glob("*.json")]
    paths = {*(cache / "images").glob("*.sif"), *(path for record in given if record for path in record.paths)}
    times: dict[Path, float] = {}
    for path in paths:
        try:
            status = path.lstat()
        except OSError:  # removed since, or of somebody else
            continue
        if stat.S_ISREG(status.st_mode):  # a pipe would never answer
            times[path] = status.st_mtime
    return sorted(times, key=lambda path: (-times[path], path))


def judge_images(broken: list[str], looked: int, count: int) -> Finding:
    """Return the finding about `looked` of `count` images."""
    rest = f"; {count - looked} not checked, 'kedge cache verify' checks all" if count > looked else ""
    if not broken:
        return Finding("cached-images", OK, f"{count_things(looked, 'image')} checked{rest}")
    return Finding(
        "cached-images",
        WARNING,
        f"{count_things(len(broken), 'image')} of {looked} cannot be read whole: {broken[0]}{rest}",
        why="an earlier version of kedge wrote files of exactly 131072 bytes wrongly; programs cannot read them",
        fix="kedge cache verify; then pull or build the image again",
        docs="kedge help doctor cached-images",
    )
