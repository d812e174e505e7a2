# SPDX-License-Identifier: BSD-3-Clause
"""Directories of the node: for temporary files, unpacked images and shared memory."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.storage.cache_home import StoragePlace, describe_room, find_existing, is_folder, look_at
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.size import format_size
from kedge.errors import KedgeError
from kedge.image.node_cache import choose_node_directory, describe_storage

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
