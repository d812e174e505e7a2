# SPDX-License-Identifier: BSD-3-Clause
"""List the items of a cache with their sizes, and remove items that are not in use."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.image.store.build_steps import drop_orphaned_steps, read_step
from kedge.image.store.cache_mounts import list_mounts
from kedge.image.store.deliveries import read_delivery
from kedge.image.store.held_images import find_held
from kedge.image.store.image_records import ImageRecord, record_path
from kedge.image.store.layout import Layout
from kedge.image.store.lease import STALE_AFTER, read_clock, read_lease
from kedge.image.store.resolved_names import read_name
from kedge.image.store.use_marks import find_used
from kedge.system.owned_names import is_running, owner_is_gone


class ItemKind(StrEnum):
    """The kinds of items in a cache."""

    BLOB = "blob"
    IMAGE = "image"
    RECORD = "record"  # of an image that the user has, and the cache not
    PARTIAL = "partial"
    NAME = "name"
    STEP = "step"  # the record of a build step, whose layer is a blob
    MOUNT = "mount"  # a directory of `RUN --mount=type=cache`
    DIGEST = "digest"  # those of the files of a build context
    FACT = "fact"  # what was read of images and hosts
    TEMPORARY = "temporary"


_LONGEST_NAME = 80  # characters of an instruction
_EVICTED = (  # the others are small
    ItemKind.BLOB,
    ItemKind.IMAGE,
    ItemKind.PARTIAL,
    ItemKind.MOUNT,
    ItemKind.DIGEST,
    ItemKind.FACT,
)


@frozen
class CacheItem:
    """One item of the cache."""

    kind: ItemKind
    name: str  # a digest, the key of an image, a reference
    size: int
    used: float  # seconds since the epoch
    in_use: bool
    path: Path
    tag: str = ""  # a name that somebody gave the image here; it may be nowhere else

    @property
    def identity(self) -> str:
        """The name that marks and leases have."""
        return self.path.stem if self.kind in (ItemKind.IMAGE, ItemKind.RECORD) else self.path.name


@frozen
class KindUsage:
    """How much of one kind there is."""

    count: int
    size: int


def list_entries(layout: Layout, *, has_names: bool = True) -> list[CacheItem]:
    """Return all items of the cache; those that vanish while it is read are left out.

    Without `has_names` build steps, which may be very many, are called by their keys, and no record of one is read.
    """
    from kedge.image.store.resolved_names import find_tagged  # late: few commands look at all items

    used = find_used(layout)
    images = used | find_held(layout)
    return [
        *_list_blobs(layout, used, find_tagged(layout)),
        *_list_images(layout, images),
        *_list_records(layout, used),
        *_list_builds(layout, used, has_names=has_names),
        *_list_others(layout),
    ]


def _list_blobs(layout: Layout, used: Collection[str], tagged: Mapping[str, str]) -> Iterator[CacheItem]:
    for folder in _children(layout.root / "blobs"):
        for group in _children(Path(folder)):
            for path, status in _files(Path(group)):
                name = f"{Path(folder).name}:{path.name}"
                if path.name.startswith("."):  # .nfs…: NFS keeps so what was removed while somebody reads it
                    continue
                is_used, tag = path.name in used, tagged.get(path.name, "")
                yield CacheItem(
                    ItemKind.BLOB, name, status.st_size, status.st_mtime, in_use=is_used, path=path, tag=tag
                )


def _list_images(layout: Layout, used: Collection[str]) -> Iterator[CacheItem]:
    for path, status in _files(layout.root / "images"):
        if path.suffix != ".sif":
            continue
        record = ImageRecord.read(path)
        name = record.key if record else path.stem
        when = status.st_mtime
        with contextlib.suppress(OSError):
            when = record_path(path).stat().st_mtime
        yield CacheItem(ItemKind.IMAGE, name, status.st_size, when, in_use=path.stem in used, path=path)


def _list_records(layout: Layout, used: Collection[str]) -> Iterator[CacheItem]:
    for path, status in _files(layout.root / "records"):
        record = read_delivery(path)
        name = f"{record.key} in {record.paths[0]}" if record and record.paths else path.stem
        yield CacheItem(ItemKind.RECORD, name, status.st_size, status.st_mtime, in_use=path.stem in used, path=path)


def _list_builds(layout: Layout, used: Collection[str], *, has_names: bool) -> Iterator[CacheItem]:
    for path, status in _files(layout.root / "steps"):
        record = read_step(path) if has_names else None
        name = record.created_by if record and record.created_by else path.stem
        yield CacheItem(ItemKind.STEP, _shorten(name), status.st_size, status.st_mtime, in_use=False, path=path)
    for path, status in _files(layout.root / "digests"):
        yield CacheItem(ItemKind.DIGEST, path.name, status.st_size, status.st_mtime, in_use=False, path=path)
    for path, status in _files(layout.root / "facts"):
        yield CacheItem(ItemKind.FACT, path.name, status.st_size, status.st_mtime, in_use=False, path=path)
    for mount in list_mounts(layout):
        is_used = mount.path.name in used
        yield CacheItem(ItemKind.MOUNT, _shorten(mount.name), mount.size, mount.used, in_use=is_used, path=mount.path)


def _shorten(name: str) -> str:
    """What a recipe calls it, on one line that is not too long."""
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"


def _list_others(layout: Layout) -> Iterator[CacheItem]:
    from kedge.image.store.resolved_names import shorten_name  # late, as above

    for path, status in _files(layout.root / "partial"):
        is_held = _has_live_lease(layout, path.name)
        yield CacheItem(ItemKind.PARTIAL, path.name, status.st_size, status.st_mtime, in_use=is_held, path=path)
    for path, status in _files(layout.root / "names"):
        record = read_name(path)
        name = f"{record.reference} {record.platform}" if record else path.name
        tag = shorten_name(record.reference) if record and record.is_local else ""
        yield CacheItem(ItemKind.NAME, name, status.st_size, status.st_mtime, in_use=False, path=path, tag=tag)
    for path, status in _files(layout.root / "tmp"):
        is_held = owner_is_gone(path.name) is not True
        yield CacheItem(ItemKind.TEMPORARY, path.name, status.st_size, status.st_mtime, in_use=is_held, path=path)


def _has_live_lease(layout: Layout, name: str) -> bool:
    lease = read_lease(layout.lease(name))
    if lease is None:
        return False
    running = is_running(lease.holder.machine, lease.holder.pid, lease.holder.start) if lease.holder else None
    if running is not None:
        return running
    return read_clock(layout.root / "tmp") - lease.touched <= STALE_AFTER


def _children(folder: Path) -> list[str]:
    try:
        return sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            if entry.is_file(follow_symlinks=False):
                yield Path(entry.path), entry.stat(follow_symlinks=False)


def sum_usage(entries: Iterable[CacheItem]) -> dict[ItemKind, KindUsage]:
    """Count and bytes of each kind."""
    sizes: dict[ItemKind, list[int]] = {kind: [] for kind in ItemKind}
    for entry in entries:
        sizes[entry.kind].append(entry.size)
    return {kind: KindUsage(len(of_kind), sum(of_kind)) for kind, of_kind in sizes.items()}


def evict(layout: Layout, limit: int) -> list[CacheItem]:
    """Remove the least recently used items until the cache is no larger than `limit`; returns what was removed."""
    entries = list_entries(layout, has_names=False)
    size = sum(entry.size for entry in entries)
    removed: list[CacheItem] = []
    removable = [entry for entry in entries if entry.kind in _EVICTED and not entry.tag]
    for entry in sorted(removable, key=lambda entry: entry.used):
        if size <= limit:
            break
        if remove_entry(layout, entry):
            size -= entry.size
            removed.append(entry)
    if any(entry.kind is ItemKind.BLOB for entry in removed):
        drop_orphaned_steps(layout)
    return removed


def remove_entry(layout: Layout, entry: CacheItem) -> bool:
    """Remove one item, unless a process uses it.

    The file is moved aside first and the marks are read again: a reader marks first and opens then, so either it
    finds the file gone, or we find its mark and put the file back.
    """
    if entry.in_use:
        return False
    aside = layout.temporary("evict")
    record = record_path(entry.path) if entry.kind is ItemKind.IMAGE else None
    try:
        entry.path.rename(aside)
    except OSError:
        return False
    if _is_taken(layout, entry):
        with contextlib.suppress(OSError):
            aside.rename(entry.path)
        return False
    if entry.kind is ItemKind.MOUNT:
        return _remove_mount(aside, entry.path)
    for path in (aside, record):
        with contextlib.suppress(OSError):
            if path is not None:
                path.unlink()
    return True


def _remove_mount(aside: Path, path: Path) -> bool:
    """Delete a directory that was moved aside; what it cannot delete stays, where it was."""
    from kedge.system.foreign_trees import remove_with_foreign  # late: only where something goes

    try:
        remove_with_foreign(aside)
    except OSError:
        with contextlib.suppress(OSError):
            aside.rename(path)
        return False
    return True


def _is_taken(layout: Layout, entry: CacheItem) -> bool:
    if entry.kind is ItemKind.PARTIAL:
        return _has_live_lease(layout, entry.path.name)
    used = find_used(layout) | (find_held(layout) if entry.kind is ItemKind.IMAGE else set())
    return entry.kind in (ItemKind.BLOB, ItemKind.IMAGE, ItemKind.MOUNT) and entry.identity in used


def clean(
    layout: Layout, kinds: Collection[ItemKind], unused_for: float | None, *, with_tagged: bool, dry_run: bool
) -> list[CacheItem]:
    """Remove everything of these kinds that was not used for so many seconds; what was (or would be) removed."""
    now = read_clock(layout.root / "tmp") or time.time()  # the first where the cache's server has a clock of its own
    removed = []
    for entry in list_entries(layout):
        if entry.kind not in kinds or entry.in_use or (entry.tag and not with_tagged):
            continue
        if unused_for is not None and now - entry.used < unused_for:
            continue
        if dry_run or remove_entry(layout, entry):
            removed.append(entry)
    if ItemKind.BLOB in kinds and not dry_run:
        drop_orphaned_steps(layout)
    return removed
