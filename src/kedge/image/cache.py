# SPDX-License-Identifier: BSD-3-Clause
"""The cache as settings describe it, and the operations of `kedge cache`."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.progress import Progress
from kedge.base.size import format_size
from kedge.errors import FileProblem, KedgeError
from kedge.image.store.eviction import CacheItem, ItemKind, KindUsage
from kedge.image.store.layout import explain_root
from kedge.image.store.store import Store, Verified
from kedge.system.host.space import Space, free_space
from kedge.system.settings import Settings

_DAY = 86400.0
_WARN_FRACTION = 0.1  # of the quota: warn if less is left
_QUOTA_FRACTION = 0.25  # of the quota: the default cap of the cache


@frozen
class _CacheReport:
    """What `kedge cache show` prints."""

    place: Path
    place_from: str
    limit: int | None
    limit_from: str
    usage: dict[ItemKind, KindUsage]
    space: Space | None

    @property
    def size(self) -> int:
        """Bytes of everything in the cache."""
        return sum(usage.size for usage in self.usage.values())

    def as_dict(self) -> dict[str, object]:
        """The report as `--json` prints it."""
        space = self.space
        return {
            "place": str(self.place),
            "place_from": self.place_from,
            "size": self.size,
            "limit": self.limit,
            "limit_from": self.limit_from,
            "free": space.free if space else None,
            "quota_left": space.quota_left if space else None,
            "kinds": {kind.value: {"count": usage.count, "size": usage.size} for kind, usage in self.usage.items()},
        }


def open_store(settings: Settings) -> Store:
    """The cache, in the directory and with the limit that settings give.

    A limit from a file, a variable or an option beats the one kept in the cache, which beats the default.
    """
    _refuse_foreign(settings.cache_directory)
    store = Store(
        settings.cache_directory,
        limit=settings.cache_limit,
        downloads=settings.download_connections,
        shared=settings.shared_cache,
    )
    if _counts_stored_limit(settings, store):
        store.limit = store.stored_limit()
    return store


def _refuse_foreign(root: Path) -> None:
    """Raise once for a cache of another user, instead of once for each of its files."""
    for directory in (root, root / "blobs"):
        try:
            if not directory.is_dir() and os.path.lexists(directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        except OSError as problem:
            raise explain_root(problem, root, directory) from problem
        if directory.is_dir() and not os.access(directory, os.R_OK | os.X_OK):
            raise FileProblem(
                f"cannot use the cache {root}: it belongs to another user, who has not shared it",
                context={"path": str(directory), "owner": str(directory.stat().st_uid)},
                hint="choose another directory with KEDGE_CACHEDIR or --cache-dir",
            )


def _counts_stored_limit(settings: Settings, store: Store) -> bool:
    return settings.sources["cache_limit"].kind == "default" and store.has_stored_limit


def report_cache(settings: Settings) -> _CacheReport:
    """Read the state of the cache; nothing is changed."""
    store = open_store(settings)
    limit_from = str(settings.sources["cache_limit"])
    if _counts_stored_limit(settings, store):
        limit_from = f"the cache: {store.root / 'limit'}"
    try:
        space = free_space(store.root)
    except KedgeError:
        space = None
    place_from = str(settings.sources["cache_directory"])
    return _CacheReport(
        place=store.root,
        place_from=place_from,
        limit=store.limit,
        limit_from=limit_from,
        usage=store.usage(),
        space=space,
    )


def respect_quota(store: Store, settings: Settings, progress: Progress) -> None:
    """Keep the default limit well below a disk quota, and warn when the quota is nearly used up."""
    try:
        space = free_space(store.root)
    except KedgeError:
        return
    if space.quota_left is None or not space.quota_limit:
        return
    if store.limit is not None and settings.sources["cache_limit"].kind == "default" and not store.has_stored_limit:
        store.limit = min(store.limit, int(space.quota_limit * _QUOTA_FRACTION))
    if space.quota_left < _WARN_FRACTION * space.quota_limit:
        progress.warn(
            f"the quota for the cache {store.root} is nearly used up: {format_size(space.quota_left)} of "
            f"{format_size(space.quota_limit)} left. Run 'kedge cache clean', or move the cache with KEDGE_CACHEDIR"
        )


def list_cache(settings: Settings) -> list[CacheItem]:
    """Everything in the cache, most recently used first."""
    return sorted(open_store(settings).entries(), key=lambda entry: (-entry.used, entry.name))


def clean_cache(
    settings: Settings, kinds: list[ItemKind], days: float | None, *, with_tagged: bool = False, dry_run: bool
) -> list[CacheItem]:
    """Remove items of these kinds that are not in use, and were not used for so many days."""
    store = open_store(settings)
    if not dry_run:
        store.sweep()
    unused_for = None if days is None else days * _DAY
    return store.clean(kinds, unused_for=unused_for, with_tagged=with_tagged, dry_run=dry_run)


def list_tagged(settings: Settings) -> list[str]:
    """The names of images that were built or tagged here, which cleaning leaves."""
    return sorted({entry.tag for entry in open_store(settings).entries() if entry.kind is ItemKind.NAME and entry.tag})


def limit_cache(settings: Settings, limit: int | None) -> list[CacheItem]:
    """Store a limit in the cache, for everybody who uses it, and apply it; returns what was removed."""
    is_overruled = settings.sources["cache_limit"].kind != "default"
    counted = settings.cache_limit if is_overruled else limit
    store = Store(settings.cache_directory, limit=counted, shared=settings.shared_cache)
    store.set_limit(limit)
    return store.evict()


def verify_cache(settings: Settings, progress: Progress, *, with_contents: bool = False) -> Verified:
    """Check the hash of every blob, image and delivered file, and the tables of images, or all of their contents.

    Returns damaged items, which are removed.
    """
    from kedge.image.formats.check_file import find_fault  # late: every verb that looks into the cache comes here
    from kedge.image.formats.squashfs.check_image import CheckOptions
    from kedge.system.host.limits import choose_threads, read_limits

    options = CheckOptions(with_contents=with_contents, threads=choose_threads(read_limits(), settings.threads))
    store = open_store(settings)
    store.images.warn = progress.warn
    total = sum(entry.size for entry in store.entries() if entry.kind in (ItemKind.BLOB, ItemKind.IMAGE))
    task = progress.task("verifying the cache", total)
    try:
        return store.verify(task.advance, lambda path: find_fault(path, options))
    finally:
        task.finish()
