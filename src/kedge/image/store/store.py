# SPDX-License-Identifier: BSD-3-Clause
"""The cache: blobs, names and converted images that all processes of all hosts share, with no index and no daemon."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.manifest import OCI_LAYER_ZSTD, Descriptor
from kedge.base.platform import Platform
from kedge.errors import InvalidSetting, KedgeError
from kedge.image.store import eviction
from kedge.image.store.blobs import Blobs, WrittenLayer
from kedge.image.store.build_steps import BuildSteps
from kedge.image.store.cache_mounts import CacheMounts
from kedge.image.store.deliveries import read_delivery
from kedge.image.store.download import JOIN_WAIT, Download, Ingest, IngestOptions, OpenAt, Workers
from kedge.image.store.eviction import CacheItem, ItemKind, KindUsage
from kedge.image.store.file_transfer import IMAGE_MODE, Delivery
from kedge.image.store.image_records import ImageRecord
from kedge.image.store.images import Build, Handing, Images
from kedge.image.store.layout import Layout, hash_text
from kedge.image.store.lease import Patience
from kedge.image.store.resolved_names import NameRecord, Names
from kedge.image.store.use_marks import Use
from kedge.system.files import atomic_output

_DEFAULT_DOWNLOADS = 4


@frozen
class Verified:
    """What was found: items of the cache that were damaged, and are gone; files of users, which stay.

    `changed` are not what kedge delivered. `faulty` are, and were written wrongly: by path, what is wrong.
    """

    broken: list[CacheItem]
    changed: list[Path]
    faulty: dict[Path, str]


class Store:
    """One cache; a context manager that stops the downloads which still run.

    `limit` is the limit in bytes; None is none. `stored_limit` is the one that the cache itself records.
    Nothing is made on disk before something is put in. Every method may be called from any thread.
    """

    def __init__(
        self, root: Path, *, limit: int | None = None, downloads: int = _DEFAULT_DOWNLOADS, shared: bool = False
    ) -> None:
        self.root = root
        self.layout = Layout(root, shared)
        self.blobs = Blobs(self.layout)
        self.names = Names(self.layout)
        self.images = Images(self.layout)
        self.steps = BuildSteps(self.layout, self.blobs)
        self.mounts = CacheMounts(self.layout)
        self.limit = limit
        self._workers = Workers(downloads)
        self._ingests: list[Ingest] = []
        self._has_swept = False
        self._evicting = threading.Lock()
        self._size: int | None = None  # at the last look, plus what came in since

    # -- blobs

    def blob_path(self, digest: Digest) -> Path:
        """Where the blob stands, if it is there."""
        return self.blobs.path(digest)

    def has_blob(self, digest: Digest, size: int | None = None) -> bool:
        """Whether the blob is there, and of that size if one is given."""
        actual = self.blobs.size(digest)
        return actual is not None and size in (None, actual)

    def add_blob(self, data: bytes, *, is_lasting: bool = True) -> Digest:
        """Keep a small document, such as a manifest or a config; not `is_lasting`: a registry has it, too."""
        self._sweep_once()
        return self.blobs.add(data, is_lasting=is_lasting)

    def add_layer(
        self, write: Callable[[BinaryIO], WrittenLayer], media_type: str = OCI_LAYER_ZSTD
    ) -> tuple[Descriptor, Digest]:
        """Keep a layer that `write` writes to the file it is given: where it is, and its diff_id.

        Nothing stays of a write that fails, and no second copy of what is there.
        """
        self._sweep_once()
        layer = self.blobs.add_written(write)
        self._evict_after(layer.size)
        return Descriptor(media_type, layer.digest, layer.size), layer.diff_id

    def read_blob(self, digest: Digest, limit: int) -> bytes | None:
        """A small blob, verified; None when it is not there or not whole."""
        return self.blobs.read(digest, limit)

    def ingest(self, descriptor: Descriptor, open_at: OpenAt, options: IngestOptions | None = None) -> Ingest:
        """Have a blob: from the cache, from another process that is fetching it, or by `open_at(offset)`.

        Returns at once; ingests run in the order they are made, a few at a time.
        """
        self._sweep_once()
        download = Download(self.blobs, descriptor, open_at, options or IngestOptions())
        use = Use(self.layout, descriptor.digest.hex)
        ingest = Ingest(descriptor, download, use, lambda: self._evict_after(descriptor.size))
        self._ingests.append(ingest)
        self._workers.submit(ingest)
        return ingest

    # -- names

    def remember(self, reference: str, platform: Platform, digest: Digest, *, is_local: bool = False) -> None:
        """Note which manifest the reference means now; a local name is this cache's own, and no registry is asked."""
        self.names.remember(reference, platform, digest, is_local=is_local)

    def recall(self, reference: str, platform: Platform) -> NameRecord | None:
        """Which manifest the reference meant when it was last asked."""
        return self.names.recall(reference, platform)

    # -- images

    def find_image(self, key: str) -> Path | None:
        """The converted image, if it is in the cache and nobody changed it."""
        return self.images.find(key)

    def build_image(
        self, key: str, build: Build, *, wait: float | None = None, notify: Callable[[str], None] | None = None
    ) -> Path:
        """The converted image; `build` writes it, in one process on all hosts, while the others wait."""
        self._sweep_once()
        with self.use_image(key):
            path = self.images.build(key, build, Patience(wait, None, notify))
            self._evict_after(path.stat().st_size)
        return path

    def build_into(self, key: str, build: Build, wish: Handing, *, keep: bool = True) -> Delivery | None:
        """The image as the user's file: from the cache, or built there and handed over.

        Without `keep` an image that is not at hand is built straight at its target, and the cache knows nothing of it;
        None is returned then.
        """
        if not keep:
            delivered = self.images.deliver(key, wish)
            if delivered is None:
                with atomic_output(wish.target, mode=IMAGE_MODE, force=wish.force) as file:
                    build(file)
            return delivered
        self._sweep_once()
        with self.use_image(key):
            delivered = self.images.build_into(key, build, wish, Patience(None, None, None))
            kept = self.images.path(key)
            self._evict_after(kept.stat().st_size if kept.exists() else 0)
        return delivered

    def deliver(self, key: str, wish: Handing) -> Delivery | None:
        """Give the user the image as a file of his own; None when it is not at hand."""
        return self.images.deliver(key, wish)

    def find_at_hand(self, key: str) -> Path | None:
        """A file that should have the image: the cache's, or one of the user's, which may have changed since."""
        return self.images.find_at_hand(key)

    def use_image(self, key: str) -> Use:
        """Mark the image as in use, until the returned context ends."""
        return Use(self.layout, hash_text(key))

    # -- size

    @property
    def has_stored_limit(self) -> bool:
        """Whether a cap, or that there is to be none, was set for this cache."""
        return (self.root / "limit").exists()

    def stored_limit(self) -> int | None:
        """The cap that was set for this cache with `set_limit`; it does not count by itself."""
        path = self.root / "limit"
        try:
            text = path.read_text(errors="replace")[:64].strip()
        except OSError:
            return None
        if text != "none" and not text.isdecimal():
            raise InvalidSetting(f"{path} does not contain a size", hint="set the limit again: kedge cache limit 20G")
        return None if text == "none" else int(text)

    def set_limit(self, limit: int | None) -> None:
        """Set a cap for this cache, for everybody who uses it; None says that there is none."""
        text = "none" if limit is None else str(limit)
        self.layout.write(self.layout.folder() / "limit", f"{text}\n".encode())

    def entries(self) -> list[CacheItem]:
        """Return all items of the cache."""
        return eviction.list_entries(self.layout)

    def usage(self) -> dict[ItemKind, KindUsage]:
        """Count and bytes of each kind."""
        return eviction.sum_usage(eviction.list_entries(self.layout, has_names=False))

    def evict(self) -> list[CacheItem]:
        """Make the cache as small as its cap asks, least recently used first, sparing what is in use."""
        return [] if self.limit is None else eviction.evict(self.layout, self.limit)

    def clean(
        self,
        kinds: Collection[ItemKind],
        *,
        unused_for: float | None = None,
        with_tagged: bool = False,
        dry_run: bool = False,
    ) -> list[CacheItem]:
        """Remove everything of these kinds that nobody uses and that was not used for so many seconds."""
        return eviction.clean(self.layout, kinds, unused_for, with_tagged=with_tagged, dry_run=dry_run)

    def remove_name(self, names: Collection[str]) -> list[CacheItem]:
        """Remove these references for all platforms, and the blobs that no other name has; what was removed."""
        from kedge.image.store.resolved_names import MOST_NAMES, list_blobs  # late: few commands remove an image

        known = self.names.list_newest(MOST_NAMES)
        gone = [record for record in known if record.reference in names]
        kept = {digest for record in known if record not in gone for digest in list_blobs(self.layout, record)}
        dropped = {digest.hex for record in gone for digest in list_blobs(self.layout, record) if digest not in kept}
        files = {self.names.find_file(record) for record in gone}
        return [
            entry
            for entry in self.entries()
            if (entry.path in files or (entry.kind is ItemKind.BLOB and entry.path.name in dropped))
            and eviction.remove_entry(self.layout, entry)
        ]

    def verify(
        self, advance: Callable[[int], None] | None = None, find_fault: Callable[[Path], str] = lambda _: ""
    ) -> Verified:
        """Hash all blobs, all images, and what users were given instead of an image; the damaged are dropped.

        `find_fault` says what is wrong with an image that has the bytes it was written with; empty if nothing is.
        """
        broken: list[CacheItem] = []
        delivered: dict[Path, bool] = {}  # one that kedge replaced by another image is as that one was
        faulty: dict[Path, str] = {}
        for entry in self.entries():
            if entry.kind is ItemKind.RECORD and (record := read_delivery(entry.path)) is not None:
                for path, is_whole in self.images.verify_delivered(record).items():
                    delivered[path] = is_whole or delivered.get(path, False)
                    if is_whole and (fault := find_fault(path)):
                        self.images.deliveries.forget(record.key, path)
                        faulty[path] = fault
            elif entry.kind in (ItemKind.BLOB, ItemKind.IMAGE, ItemKind.RECORD) and not self._is_whole(entry):
                broken.append(entry)
            elif entry.kind is ItemKind.IMAGE and (fault := find_fault(entry.path)):
                self.images.drop_faulty(entry.path, fault)
                broken.append(entry)
            if advance is not None and entry.kind in (ItemKind.BLOB, ItemKind.IMAGE):
                advance(entry.size)
        return Verified(broken, [path for path, is_whole in delivered.items() if not is_whole], faulty)

    def _is_whole(self, entry: CacheItem) -> bool:
        """Whether an item of the cache has its bytes; if not, it is removed. Of a record that is known already."""
        if entry.kind is ItemKind.RECORD:
            entry.path.unlink(missing_ok=True)
            return False
        if entry.kind is ItemKind.BLOB:
            return self.blobs.check(Descriptor("", Digest.parse(entry.name), entry.size))
        is_young = entry.in_use and ImageRecord.read(entry.path) is None  # it is just being put there
        return is_young or self.images.verify(entry.path)

    def sweep(self) -> int:
        """Remove what killed processes left; how many bytes that freed."""
        return self.layout.sweep()

    def _sweep_once(self) -> None:
        if not self._has_swept:
            self._has_swept = True
            self.layout.sweep()

    def _evict_after(self, added: int) -> None:
        """Keep the cap after something came in; the cache is read again only when it may have grown above it."""
        if self.limit is None:
            return
        with self._evicting, contextlib.suppress(KedgeError, OSError):  # must not fail a pull that succeeded
            self._size = self._measure() if self._size is None else self._size + added
            if self._size > self.limit:
                self.evict()
                self._size = self._measure()

    def _measure(self) -> int:
        return sum(entry.size for entry in eviction.list_entries(self.layout, has_names=False))

    def close(self) -> None:
        """Stop downloads that still run, keeping what has arrived; may be called twice."""
        for ingest in self._ingests:
            ingest.cancel()
        end = time.monotonic() + JOIN_WAIT
        for ingest in self._ingests:
            ingest.close(end - time.monotonic())
        self._ingests.clear()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
