# SPDX-License-Identifier: BSD-3-Clause
"""The cache and the home directory: whether they are writable, and how much space, quota and files are left."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.base.size import format_size
from kedge.errors import KedgeError
from kedge.system.host.space import Space, find_better_place, find_mount, free_space
from kedge.system.settings import home_directory

_ROOM_FOR_IMAGE = 20 * 10**9  # layers and SIF of one large framework image, roughly
_ALMOST_NOTHING = 200 * 10**6
_FEW_FILES = 20_000
_SMALL_SHARE = 0.05


@frozen
class StoragePlace:
    """A directory that kedge writes to; it need not exist yet."""

    path: Path
    origin: str  # the setting or variable that names it
    kind: str  # the file system's name for itself: ext4, nfs4, lustre
    space: Space | None
    files_left: int | None  # None: the file system does not count them
    is_writable: bool
    shares_home: bool  # on the file system of the home directory


def look_at(path: Path, origin: str, surroundings: Surroundings) -> StoragePlace:
    """Gather the facts about a directory."""
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
    return StoragePlace(
        path=path,
        origin=origin,
        kind=mount.kind if mount else "",
        space=space,
        files_left=files_left,
        is_writable=can_write,
        shares_home=shares_home,
    )


def find_existing(path: Path) -> Path:
    """The directory itself, or its nearest parent that exists."""
    return next(place for place in (path, *path.parents) if is_folder(place) or place == place.parent)


def is_folder(path: Path) -> bool:
    """Whether a path is a directory; unlike Path.is_dir this does not raise if a parent is not accessible."""
    return os.path.isdir(path)  # noqa: PTH112


def check_store(surroundings: Surroundings) -> list[Finding]:
    """Check place and space of the cache."""
    settings = surroundings.settings
    place = look_at(settings.cache_directory, str(settings.sources["cache_directory"]), surroundings)
    better = None
    if place.space is not None and place.is_writable:
        wanted = max(_ROOM_FOR_IMAGE, place.space.usable)
        better = find_better_place(wanted, avoid=place.space.path, environ=surroundings.environ)
    return [judge_store(place, better)]


def judge_store(place: StoragePlace, better: Space | None) -> Finding:
    """Report the most serious problem of the cache's directory."""
    docs = "kedge help doctor store"
    move = _tell_move(place.origin, f"{better.path}/kedge" if better else "DIRECTORY")
    where = f"{place.path} ({', '.join(word for word in (place.kind, place.origin) if word)})"
    if not place.is_writable:
        why = "kedge keeps layers and images there; without it every pull fails"
        return Finding("store", FAIL, f"{where} is not writable", why=why, fix=move, docs=docs)
    if place.space is None:
        return Finding("store", OK, f"{where}; free space unknown")
    room = describe_room(place.space)
    if place.space.usable < _ALMOST_NOTHING:
        why = "a pull fails, because its layers do not fit"
        return Finding(
            "store", FAIL, f"{where}: {room}", why=why, fix=f"kedge cache clean --days 30, or {move}", docs=docs
        )
    if place.files_left is not None and place.files_left < _FEW_FILES:
        why = "quotas and file systems also limit files: 'No space left on device' despite free space"
        what = f"{where}: space for only {count_things(place.files_left, 'more file')}"
        return Finding(
            "store", WARNING, what, why=why, fix=f"remove directories with many small files, or {move}", docs=docs
        )
    if place.space.usable < _ROOM_FOR_IMAGE:
        why = "images with CUDA have several GB, and the cache keeps layers and image file: about twice that"
        return Finding(
            "store", WARNING, f"{where}: {room}", why=why, fix=f"kedge cache clean --days 30, or {move}", docs=docs
        )
    if place.shares_home and better is not None and place.space.quota_left is not None:
        why = f"homes have quotas and are slow from many nodes; {better.path} has {format_size(better.usable)}"
        return Finding(
            "store", NOTE, f"{where} is on the file system of your home: {room}", why=why, fix=move, docs=docs
        )
    return Finding("store", OK, f"{where}: {room}")


def _tell_move(origin: str, directory: str) -> str:
    """The command that moves the cache: a variable or an option overrides the settings."""
    kind, _, where = origin.partition(": ")
    if kind == "environment":
        return f"export {where}={directory}"
    return f"--cache-dir {directory}" if kind == "flag" else f"kedge config set cache_directory {directory}"


def describe_room(space: Space) -> str:
    """`12 GB free`, `3 GB left of your quota of 50 GB`."""
    if space.quota_left is not None and space.quota_left <= space.free:
        return f"{format_size(space.quota_left)} left of your quota of {format_size(space.quota_limit or 0)}"
    return f"{format_size(space.free)} free"


def check_home(surroundings: Surroundings) -> list[Finding]:
    """Check whether the home exists, and what is left of its quota."""
    home = home_directory(surroundings.environ)
    return [judge_home(look_at(home, "HOME", surroundings), is_folder(home))]


def judge_home(place: StoragePlace, is_there: bool) -> Finding:
    """Report a home that is missing, read-only or full, which breaks many programs."""
    docs = "kedge help doctor home"
    if not is_there or str(place.path) == "/":
        why = "kedge keeps settings, credentials and job records there, and most programs of an image expect a home"
        what = f"{place.path} does not exist" if str(place.path) != "/" else "HOME is not set, or is '/'"
        return Finding("home", WARNING, what, why=why, fix="export HOME=DIRECTORY", docs=docs)
    if not place.is_writable:
        why = "containers run without it, but logins, job records and most programs write to it"
        fix = "if it is read-only on compute nodes, submit from another directory; set KEDGE_JOBDIR to a writable one"
        return Finding("home", WARNING, f"{place.path} is not writable", why=why, fix=fix, docs=docs)
    space = place.space
    if space is None:
        return Finding("home", OK, str(place.path))
    least = max(_ALMOST_NOTHING, int(_SMALL_SHARE * (space.quota_limit or 0)))
    if space.usable < least:
        why = "with a full home logins fail, jobs lose their output, and programs with caches there crash"
        fix = "find large directories: du -xh --max-depth=2 ~ | sort -h | tail; you can remove ~/.cache, "
        fix += "~/.apptainer/cache and ~/.singularity/cache"
        return Finding("home", WARNING, f"{place.path}: {describe_room(space)}", why=why, fix=fix, docs=docs)
    return Finding("home", OK, f"{place.path} ({place.kind}): {describe_room(space)}")


def check_old_caches(surroundings: Surroundings) -> list[Finding]:
    """Check for caches of Singularity and Apptainer in the home."""
    home = home_directory(surroundings.environ)
    caches = [cache for cache in (home / ".singularity/cache", home / ".apptainer/cache") if _has_entries(cache)]
    if not caches:
        return [Finding("old-caches", OK, "no cache of Singularity or Apptainer in the home")]
    return [
        Finding(
            "old-caches",
            NOTE,
            f"{' and '.join(map(str, caches))} hold images of Singularity or Apptainer",
            why="they count against the home's quota, and kedge does not use them",
            fix=f"if you no longer use them: rm -r {' '.join(map(str, caches))}",
            docs="kedge help doctor old-caches",
        )
    ]


def _has_entries(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except OSError:
        return False
