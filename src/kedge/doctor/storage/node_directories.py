# SPDX-License-Identifier: BSD-3-Clause
"""Folders of the node: for temporary files, for unpacked images, and for shared memory."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.doctor.storage.cache_home import StoragePlace, describe_room, find_existing, is_folder, look_at
from kedge.doctor.surroundings import Surroundings
from kedge.errors import KedgeError
from kedge.model.size import format_size
from kedge.runtime.images.node_cache import choose_node_directory, describe_storage

_LITTLE = 10**9
_ROOM_FOR_ROOT = 20 * 10**9  # one large framework image, unpacked, roughly
_DOCKERS_SHARE = 64 << 20
_LITTLE_SHARED = 10**9


def check_temporary(surroundings: Surroundings) -> list[Finding]:
    """The directory of the settings, which is TMPDIR or /tmp unless somebody said otherwise."""
    settings = surroundings.settings
    path = settings.temporary_directory
    origin = str(settings.sources["temporary_directory"])
    is_there = is_folder(path)
    flags = os.statvfs(path).f_flag if is_there else 0
    kept_on = describe_storage(str(path)) if is_there else ""
    place = look_at(path, origin, surroundings)
    return [judge_temporary(place, is_there=is_there, kept_on=kept_on, is_noexec=bool(flags & os.ST_NOEXEC))]


def judge_temporary(place: StoragePlace, *, is_there: bool, kept_on: str, is_noexec: bool) -> Finding:
    """The gravest thing that can be said about it."""
    docs = "kedge help doctor temporary"
    where = f"{place.path} ({place.origin})"
    elsewhere = "export TMPDIR=FOLDER, one that exists and that you can write (in jobs often $SLURM_TMPDIR or /scratch)"
    if not is_there or not place.is_writable:
        state = "cannot be written" if is_there else "does not exist"
        why = "pulling and converting put files there, and so do most programs"
        return Finding("temporary", FAIL, f"{where} {state}", why, elsewhere, docs)
    room = describe_room(place.space) if place.space else "not known"
    if place.space is not None and place.space.usable < _LITTLE:
        why = "compilers, package managers and frameworks fail with 'No space left on device'"
        fix = f"remove what is yours there (find {place.path} -user $USER), or {elsewhere}"
        return Finding("temporary", WARNING, f"{where}: {room}", why, fix, docs)
    if is_noexec:
        why = "containers run all the same, but programs that compile there and load the result fail (Triton, "
        why += "torch.compile, pip): 'failed to map segment from shared object'"
        fix = "in the container: --env TMPDIR=FOLDER,TRITON_CACHE_DIR=FOLDER with a directory in your home or scratch"
        return Finding("temporary", NOTE, f"{where} is mounted noexec: {room}", why, fix, docs)
    if kept_on == "memory":
        why = "files there are memory: in a job they count against its limit, and the kernel kills for them"
        return Finding("temporary", NOTE, f"{where} is memory: {room}", why, elsewhere, docs)
    return Finding("temporary", OK, f"{where}: {room}")


def check_node_place(surroundings: Surroundings) -> list[Finding]:
    """Where images are unpacked on this node."""
    environ = dict(surroundings.environ)
    chosen = surroundings.settings.node_directory
    if chosen is not None:
        environ["KEDGE_NODEDIR"] = str(chosen)
    try:
        path = Path(choose_node_directory(environ))
    except KedgeError as problem:
        why = "image files can only be mounted then, and references cannot be run at all"
        return [Finding("node-place", FAIL, problem.message, why, problem.hint or "", "kedge help doctor node-place")]
    return [judge_node_place(look_at(path, "", surroundings), describe_storage(str(find_existing(path))))]


def judge_node_place(place: StoragePlace, kept_on: str) -> Finding:
    """Whether a large image has room there, and whether it is a disk."""
    docs = "kedge help doctor node-place"
    room = describe_room(place.space) if place.space else "not known"
    what = f"{place.path} ({kept_on or 'not known'}): {room}"
    choose = "choose a disk of the node: KEDGE_NODEDIR=/local/$USER/kedge"
    if not place.is_writable:
        why = "image files can only be mounted then, and references cannot be run at all"
        return Finding("node-place", FAIL, f"{place.path} cannot be written", why, choose, docs)
    if kept_on == "network":
        why = "unpacked images are many small files, which network file systems are slow with; every node shares them"
        return Finding("node-place", WARNING, what, why, choose, docs)
    if kept_on == "memory":
        why = "what is unpacked there counts as memory of the job"
        fix = f"run image files, which squashfuse mounts without unpacking; or {choose}"
        return Finding("node-place", NOTE, what, why, fix, docs)
    if place.space is not None and place.space.usable < _ROOM_FOR_ROOT:
        why = "an unpacked image takes about three times its compressed size, and those with CUDA have several GB"
        fix = f"kedge cache clean --node; {choose}; or --root-from squashfuse, which does not unpack"
        return Finding("node-place", NOTE, what, why, fix, docs)
    return Finding("node-place", OK, what)


def check_shared_memory(surroundings: Surroundings) -> list[Finding]:
    """/dev/shm, through which data loaders and the ranks of a node exchange data."""
    path = Path(surroundings.root) / "dev/shm"
    try:
        status = os.statvfs(path)
    except OSError:
        return [judge_shared_memory(None, 0, is_writable=False)]
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    return [judge_shared_memory(total, free, is_writable=os.access(path, os.W_OK | os.X_OK))]


def judge_shared_memory(total: int | None, free: int, *, is_writable: bool) -> Finding:
    """Whether it is there, and large enough for NCCL and PyTorch."""
    docs = "kedge help doctor shared-memory"
    why = (
        "PyTorch's data loaders, NCCL and MPI exchange data through it: 'Bus error', or 'unable to open shared memory'"
    )
    if total is None or not is_writable:
        state = "does not exist" if total is None else "cannot be written"
        return Finding("shared-memory", FAIL, f"/dev/shm {state}", why, "an administrator mounts it: tmpfs", docs)
    what = f"{format_size(free)} free of {format_size(total)} in /dev/shm"
    if total <= _DOCKERS_SHARE:
        fix = "it has the size that Docker gives: start the outer container with --shm-size=16g or --ipc=host"
        return Finding("shared-memory", WARNING, what, why, fix, docs)
    if free < _LITTLE_SHARED:
        fix = "remove what dead programs left (ls -l /dev/shm), or use fewer workers"
        return Finding("shared-memory", WARNING, what, why, fix, docs)
    return Finding("shared-memory", OK, what)
