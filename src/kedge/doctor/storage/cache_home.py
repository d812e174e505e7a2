# SPDX-License-Identifier: BSD-3-Clause
"""Where the store is: whether it can be written, what is left of space, quota and files, and whether it is well put."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.errors import KedgeError
from kedge.frozen import frozen
from kedge.host.space import Space, find_better_place, find_mount, free_space
from kedge.model.counting import count_things
from kedge.model.size import format_size
from kedge.settings import home_directory

_ROOM_FOR_IMAGE = 20 * 10**9  # layers and SIF of one large framework image, roughly
_ALMOST_NOTHING = 200 * 10**6
_FEW_FILES = 20_000
_SMALL_SHARE = 0.05


@frozen
class StoragePlace:
    """A directory that is written to, which need not exist yet."""

    path: Path
    origin: str  # what named it
    kind: str  # the file system's name for itself: ext4, nfs4, lustre
    space: Space | None
    files_left: int | None  # None: the file system does not count them
    is_writable: bool
    shares_home: bool  # it is on the file system of the home directory


def look_at(path: Path, origin: str, surroundings: Surroundings) -> StoragePlace:
    """What is known about a directory."""
    existing = find_existing(path)
    mount = find_mount(existing)
    home = home_directory(surroundings.environ)
    try:
        space: Space | None = free_space(existing)
        status = os.statvfs(existing)
        files_left = status.f_favail if status.f_files else None
        shares_home = is_folder(home) and home.stat().st_dev == existing.stat().st_dev
    except (KedgeError, OSError):
        space, files_left, shares_home = None, None, False
    can_write = os.access(existing, os.W_OK | os.X_OK)
    return StoragePlace(path, origin, mount.kind if mount else "", space, files_left, can_write, shares_home)


def find_existing(path: Path) -> Path:
    """The directory itself, or the nearest one above it that is there."""
    return next(each for each in (path, *path.parents) if is_folder(each) or each == each.parent)


def is_folder(path: Path) -> bool:
    """Whether it is one; Path.is_dir raises where a directory above may not be entered, and that is for us to say."""
    return os.path.isdir(path)  # noqa: PTH112


def check_store(surroundings: Surroundings) -> list[Finding]:
    """Place, room and neighbours of the store."""
    settings = surroundings.settings
    place = look_at(settings.cache_directory, str(settings.sources["cache_directory"]), surroundings)
    better = None
    if place.space is not None and place.is_writable:
        wanted = max(_ROOM_FOR_IMAGE, place.space.usable)
        better = find_better_place(wanted, avoid=place.space.path, environ=surroundings.environ)
    return [judge_store(place, better)]


def judge_store(place: StoragePlace, better: Space | None) -> Finding:
    """The gravest thing that can be said about the place."""
    docs = "kedge help doctor store"
    move = _tell_move(place.origin, f"{better.path}/kedge" if better else "FOLDER")
    where = f"{place.path} ({', '.join(each for each in (place.kind, place.origin) if each)})"
    if not place.is_writable:
        why = "pulled layers and images are kept there; without it every pull fails"
        return Finding("store", FAIL, f"{where} cannot be written", why, move, docs)
    if place.space is None:
        return Finding("store", OK, f"{where}; how much room there is, is not known")
    room = describe_room(place.space)
    if place.space.usable < _ALMOST_NOTHING:
        why = "a pull has no room for its layers, and fails"
        return Finding("store", FAIL, f"{where}: {room}", why, f"kedge cache clean --days 30, or {move}", docs)
    if place.files_left is not None and place.files_left < _FEW_FILES:
        why = "quotas and file systems count files, too: 'No space left on device' with room to spare"
        what = f"{where}: there is room for {count_things(place.files_left, 'more file')} only"
        return Finding("store", WARNING, what, why, f"remove directories with many small files, or {move}", docs)
    if place.space.usable < _ROOM_FOR_IMAGE:
        why = "images with CUDA have several GB, and the store keeps layers and image file: about twice that"
        return Finding("store", WARNING, f"{where}: {room}", why, f"kedge cache clean --days 30, or {move}", docs)
    if place.shares_home and better is not None and place.space.quota_left is not None:
        why = f"homes have quotas and are slow on many nodes; {better.path} has {format_size(better.usable)}"
        return Finding("store", NOTE, f"{where} is with your home: {room}", why, move, docs)
    return Finding("store", OK, f"{where}: {room}")


def _tell_move(origin: str, folder: str) -> str:
    """The command that moves the store: a variable or an option counts more than the settings."""
    kind, _, where = origin.partition(": ")
    if kind == "environment":
        return f"export {where}={folder}"
    return f"--cache-dir {folder}" if kind == "flag" else f"kedge config set cache_directory {folder}"


def describe_room(space: Space) -> str:
    """`12 GB free`, `3 GB left of your quota of 50 GB`."""
    if space.quota_left is not None and space.quota_left <= space.free:
        return f"{format_size(space.quota_left)} left of your quota of {format_size(space.quota_limit or 0)}"
    return f"{format_size(space.free)} free"


def check_home(surroundings: Surroundings) -> list[Finding]:
    """Whether there is a home, and whether its quota is used up."""
    home = home_directory(surroundings.environ)
    return [judge_home(look_at(home, "HOME", surroundings), is_folder(home))]


def judge_home(place: StoragePlace, is_there: bool) -> Finding:
    """A full or missing home breaks programs that have nothing to do with it."""
    docs = "kedge help doctor home"
    if not is_there or str(place.path) == "/":
        why = "settings, credentials and records of jobs are kept there, and most programs of an image expect one"
        what = f"there is no directory {place.path}" if str(place.path) != "/" else "HOME is not set, or it is '/'"
        return Finding("home", WARNING, what, why, "export HOME=FOLDER", docs)
    if not place.is_writable:
        why = "kedge needs nothing there, but logins, records of jobs and most programs write to it"
        fix = (
            "if it is read-only on compute nodes, submit from another directory; set KEDGE_JOBDIR to one you can write"
        )
        return Finding("home", WARNING, f"{place.path} cannot be written", why, fix, docs)
    space = place.space
    if space is None:
        return Finding("home", OK, str(place.path))
    least = max(_ALMOST_NOTHING, int(_SMALL_SHARE * (space.quota_limit or 0)))
    if space.usable < least:
        why = "with a full home logins fail, jobs lose their output, and programs that keep caches there crash"
        fix = "du -xh --max-depth=2 ~ | sort -h | tail shows what is large; ~/.cache, ~/.apptainer/cache and "
        fix += "~/.singularity/cache can be removed"
        return Finding("home", WARNING, f"{place.path}: {describe_room(space)}", why, fix, docs)
    return Finding("home", OK, f"{place.path} ({place.kind}): {describe_room(space)}")


def check_old_caches(surroundings: Surroundings) -> list[Finding]:
    """What Singularity and Apptainer have left in the home."""
    home = home_directory(surroundings.environ)
    found = [each for each in (home / ".singularity/cache", home / ".apptainer/cache") if _has_entries(each)]
    if not found:
        return [Finding("old-caches", OK, "none of Singularity's or Apptainer's in the home")]
    return [
        Finding(
            "old-caches",
            NOTE,
            f"{' and '.join(map(str, found))} hold images of Singularity or Apptainer",
            "they count against the home's quota, and kedge does not use them",
            f"when nothing uses them any more: rm -r {' '.join(map(str, found))}",
            "kedge help doctor old-caches",
        )
    ]


def _has_entries(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False
