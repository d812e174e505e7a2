# SPDX-License-Identifier: BSD-3-Clause
"""Directories of the node: for temporary files, unpacked images and shared memory."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Finding, Surroundings
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.base.size import format_size
from kedge.errors import CorruptImage, HostileImage, KedgeError
from kedge.image.formats.check_file import check_file
from kedge.image.formats.squashfs.check_image import CheckOptions
from kedge.image.node_cache import choose_node_directory, describe_storage
from kedge.image.store.deliveries import read_delivery
from kedge.system.host.space import Space, find_better_place, find_mount, free_space
from kedge.system.settings import home_directory

_LITTLE = 10**9
_ROOM_FOR_ROOT = 20 * 10**9  # one large framework image, unpacked, roughly
_DOCKERS_SHARE = 64 << 20
_LITTLE_SHARED = 10**9


def check_temporary(surroundings: Surroundings) -> list[Finding]:
    """Check the directory of the settings; default: TMPDIR, then /tmp."""
    settings = surroundings.settings
    path = settings.temporary_directory
    origin = str(settings.sources["temporary_directory"])
    is_there = is_folder(path)
    flags = os.statvfs(path).f_flag if is_there else 0
    kept_on = describe_storage(str(path)) if is_there else ""
    place = look_at(path, origin, surroundings)
    return [judge_temporary(place, is_there=is_there, kept_on=kept_on, is_noexec=bool(flags & os.ST_NOEXEC))]


def judge_temporary(place: StoragePlace, *, is_there: bool, kept_on: str, is_noexec: bool) -> Finding:
    """Report the most serious problem of the directory for temporary files."""
    docs = "kedge help doctor temporary"
    where = f"{place.path} ({place.origin})"
    elsewhere = "export TMPDIR=DIRECTORY, an existing writable one (in jobs often $SLURM_TMPDIR or /scratch)"
    if not is_there or not place.is_writable:
        state = "is not writable" if is_there else "does not exist"
        why = "kedge pull, kedge convert and most programs write temporary files there"
        return Finding("temporary", FAIL, f"{where} {state}", why=why, fix=elsewhere, docs=docs)
    room = describe_room(place.space) if place.space else "free space unknown"
    if place.space is not None and place.space.usable < _LITTLE:
        why = "compilers, package managers and frameworks fail with 'No space left on device'"
        fix = f"remove your files there (find {place.path} -user $USER), or {elsewhere}"
        return Finding("temporary", WARNING, f"{where}: {room}", why=why, fix=fix, docs=docs)
    if is_noexec:
        why = "containers still run, but programs that compile code there and load it fail (Triton, torch.compile, "
        why += "pip): 'failed to map segment from shared object'"
        fix = "use a directory of your home or scratch: --env TMPDIR=DIRECTORY,TRITON_CACHE_DIR=DIRECTORY"
        return Finding("temporary", NOTE, f"{where} is mounted noexec: {room}", why=why, fix=fix, docs=docs)
    if kept_on == "memory":
        why = "files there count against the memory limit of a job; the kernel kills processes above the limit"
        return Finding("temporary", NOTE, f"{where} is in memory: {room}", why=why, fix=elsewhere, docs=docs)
    return Finding("temporary", OK, f"{where}: {room}")


def check_node_place(surroundings: Surroundings) -> list[Finding]:
    """Check the directory for unpacked images on this node."""
    environ = dict(surroundings.environ)
    chosen = surroundings.settings.node_directory
    if chosen is not None:
        environ["KEDGE_NODEDIR"] = str(chosen)
    try:
        path = Path(choose_node_directory(environ))
    except KedgeError as problem:
        why = "kedge cannot unpack images: it can only mount image files, and cannot run image references"
        return [
            Finding(
                "node-place",
                FAIL,
                problem.message,
                why=why,
                fix=problem.hint or "",
                docs="kedge help doctor node-place",
            )
        ]
    return [judge_node_place(look_at(path, "", surroundings), describe_storage(str(find_existing(path))))]


def judge_node_place(place: StoragePlace, kept_on: str) -> Finding:
    """Check whether a large image fits there, and whether it is a disk."""
    docs = "kedge help doctor node-place"
    room = describe_room(place.space) if place.space else "free space unknown"
    what = f"{place.path} ({kept_on or 'unknown'}): {room}"
    choose = "use a local disk of the node: export KEDGE_NODEDIR=/local/$USER/kedge"
    if not place.is_writable:
        why = "kedge cannot unpack images: it can only mount image files, and cannot run image references"
        return Finding("node-place", FAIL, f"{place.path} is not writable", why=why, fix=choose, docs=docs)
    if kept_on == "network":
        why = "unpacked images are many small files, which are slow on network file systems shared by all nodes"
        return Finding("node-place", WARNING, what, why=why, fix=choose, docs=docs)
    if kept_on == "memory":
        why = "unpacked images there count as memory of the job"
        fix = f"run image files, which squashfuse mounts without unpacking; or {choose}"
        return Finding("node-place", NOTE, what, why=why, fix=fix, docs=docs)
    if place.space is not None and place.space.usable < _ROOM_FOR_ROOT:
        why = "an unpacked image takes about three times its compressed size, and those with CUDA have several GB"
        fix = f"kedge cache clean --node; or {choose}; or mount without unpacking: --root-from squashfuse"
        return Finding("node-place", NOTE, what, why=why, fix=fix, docs=docs)
    return Finding("node-place", OK, what)


def check_shared_memory(surroundings: Surroundings) -> list[Finding]:
    """Check /dev/shm, through which data loaders and the ranks of a node exchange data."""
    path = Path(surroundings.root) / "dev/shm"
    try:
        status = os.statvfs(path)
    except OSError:
        return [judge_shared_memory(None, 0, is_writable=False)]
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    return [judge_shared_memory(total, free, is_writable=os.access(path, os.W_OK | os.X_OK))]


def judge_shared_memory(total: int | None, free: int, *, is_writable: bool) -> Finding:
    """Check whether /dev/shm exists and is large enough for NCCL and PyTorch."""
    docs = "kedge help doctor shared-memory"
    why = "PyTorch's data loaders, NCCL and MPI need it; they fail: 'Bus error', 'unable to open shared memory'"
    if total is None or not is_writable:
        state = "does not exist" if total is None else "is not writable"
        fix = "an administrator must mount a tmpfs there"
        return Finding("shared-memory", FAIL, f"/dev/shm {state}", why=why, fix=fix, docs=docs)
    what = f"{format_size(free)} free of {format_size(total)} in /dev/shm"
    if total <= _DOCKERS_SHARE:
        fix = "this is Docker's default size: start the outer container with --shm-size=16g or --ipc=host"
        return Finding("shared-memory", WARNING, what, why=why, fix=fix, docs=docs)
    if free < _LITTLE_SHARED:
        fix = "remove files that dead programs left (ls -l /dev/shm), or use fewer workers"
        return Finding("shared-memory", WARNING, what, why=why, fix=fix, docs=docs)
    return Finding("shared-memory", OK, what)


# Images in the cache, and those that it gave away: whether a version of kedge that had a fault wrote them wrongly.
#
# Only tables are read, of the newest images, up to so many inodes and seconds: contents may be many gigabytes.

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


# The cache and the home directory: whether they are writable, and how much space, quota and files are left.

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
