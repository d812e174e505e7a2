# SPDX-License-Identifier: BSD-3-Clause
"""What every operation needs: settings, the cache, access to registries, and progress."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen, replace
from kedge.base.platform import Platform
from kedge.base.progress import Progress, Silent
from kedge.errors import FileProblem, NoSpace
from kedge.image.store.store import Store
from kedge.system.files import explained
from kedge.system.settings import Settings

if TYPE_CHECKING:
    from kedge.image.registry.access_options import AccessOptions
    from kedge.image.registry.client_setup import Access

_PASSING_STORE = "kedge-store"
LOOKUP_PATIENCE = 10.0  # seconds; to ask whether an image that is here is still the newest
_QUESTION_PATIENCE = 20.0  # seconds; for commands whose user waits for the answer
# The hint for a hurried request that got no answer.
MORE_RETRIES = "try more often with --retries N, or with the setting 'retries'"

# Imports inside the methods below are late for start-up cost: few commands need them all.


@frozen
class Workplace:
    """Settings and progress of one command; opens what it needs when it is needed."""

    settings: Settings
    progress: Progress = Silent()
    access: AccessOptions | None = None
    fix_permissions: bool = False  # --fix-perms
    verify: bool = False  # --verify: read images back that were written, and compare their contents
    login_registries: frozenset[str] | None = None  # in a build: who may get the login of the environment

    @property
    def packing(self) -> str:
        """How cached images are packed, and whether they were compared with what came in: part of their key."""
        wishes = ("+fix-perms" if self.fix_permissions else "") + ("+verify" if self.verify else "")
        return self.settings.compression + wishes

    @property
    def platform(self) -> Platform:
        """The requested architecture; by default that of this host."""
        return Platform.parse(self.settings.architecture) if self.settings.architecture else Platform.host()

    @property
    def threads(self) -> int:
        """The number of threads that may compress."""
        from kedge.system.host.limits import choose_threads, read_limits

        return choose_threads(read_limits(), self.settings.threads)

    @property
    def ahead(self) -> int:
        """The bytes of layers that may wait in memory, inflated."""
        from kedge.system.host.limits import choose_ahead, choose_threads, read_limits

        limits = read_limits()
        return choose_ahead(limits, choose_threads(limits, self.settings.threads))

    @property
    def is_hurried(self) -> bool:
        """Whether requests to registries are given up soon."""
        return self.access is not None and self.access.patience is not None

    def hurry(self, patience: float | None = None) -> Workplace:
        """Return the workplace for a quick request, given up sooner than a pull, unless the user set `retries`."""
        from kedge.image.registry.access_options import AccessOptions

        if self.settings.sources["retries"].kind != "default":
            return self
        return replace(self, access=replace(self.access or AccessOptions(), patience=patience or _QUESTION_PATIENCE))

    def open_access(self, *, patient: bool = True, patience: float | None = None) -> Access:
        """Access to registries; an impatient one does not retry, for callers that have an alternative."""
        from kedge.image.registry.access_options import AccessOptions
        from kedge.image.registry.client_setup import Access

        settings, asked = self.settings, self.access or AccessOptions()
        options = replace(
            asked,
            no_https=asked.no_https or settings.no_https,
            ca_bundle=asked.ca_bundle or settings.ca_bundle,
            retries=settings.retries if patient else 0,
            patience=patience or asked.patience,
            stall_timeout=settings.stall_timeout,
            minimum_speed=settings.minimum_speed or 0,
            login_registries=self.login_registries,
        )
        return Access.open(options, progress=self.progress)

    @property
    def store_choice(self) -> str:
        """The option that moves the cache of `open_store`; `{}` stands for the directory."""
        from kedge.system.host.space import STORE_CHOICE

        return "--tmpdir {}" if self.settings.disable_cache else STORE_CHOICE

    @contextlib.contextmanager
    def open_store(self) -> Iterator[Store]:
        """The cache, or with `disable_cache` a temporary one."""
        settings = self.settings
        if not settings.disable_cache:
            from kedge.image.cache import open_store

            with open_store(settings) as store:
                store.images.warn = self.progress.warn
                yield store
            return
        place = make_passing_store(settings.temporary_directory)
        try:
            with Store(place, downloads=settings.download_connections) as store:
                yield store
        finally:
            import shutil  # late: most commands leave nothing to remove

            shutil.rmtree(place, ignore_errors=True)

    def go_around_cache(self, problem: FileProblem | NoSpace) -> Workplace:
        """Return the workplace without the cache, if the cache is what cannot be written; else raises the problem.

        A disk that became full during the download is no reason to fetch everything again.
        """
        path, place = Path(str(problem.context.get("path", ""))), self.settings.cache_directory
        is_cache = path.is_relative_to(place) or (path.is_absolute() and place.is_relative_to(path))
        is_late = isinstance(problem, NoSpace) and "needed" not in problem.context and not _is_early(path, place)
        if not is_cache or self.settings.disable_cache or is_late:
            raise problem
        is_full = isinstance(problem, NoSpace)  # whose hint names a place with room
        remedy = f"To use it, {problem.hint}" if is_full else "Choose another directory with KEDGE_CACHEDIR"
        self.progress.warn(f"the cache is not used: {problem.message}. {remedy}")
        return replace(self, settings=replace(self.settings, disable_cache=True))

    @contextlib.contextmanager
    def attempt(self, store: Store, what: str) -> Iterator[None]:
        """Explain an earlier attempt that was killed, and leave a mark in case this one is."""
        from kedge.cluster.host_memory import explain_killed, mark_attempt, watch_memory
        from kedge.image.cache import respect_quota

        marks = store.root / "attempts"
        for sentence in explain_killed(marks, what):
            self.progress.warn(sentence)
        respect_quota(store, self.settings, self.progress)
        with mark_attempt(marks, what), watch_memory(what):
            yield


def make_passing_store(directory: Path) -> Path:
    """A temporary cache, which lives as long as this process; those of killed processes are removed."""
    from kedge.system.owned_names import own_name, owner_is_gone

    with explained(directory):
        for left in directory.glob(f"{_PASSING_STORE}.*"):
            with contextlib.suppress(FileNotFoundError):  # of a process that ended between the two looks
                if left.lstat().st_uid == os.getuid() and owner_is_gone(left.name):
                    import shutil  # late, as above

                    shutil.rmtree(left, ignore_errors=True)
        place = directory / own_name(_PASSING_STORE)
        place.mkdir(mode=0o700)
    return place


def _is_early(path: Path, cache: Path) -> bool:
    """Whether a path is written before any layer: the cache's own directory, manifests, configs and names."""
    return cache.is_relative_to(path) or any(path.is_relative_to(cache / name) for name in ("blobs", "names"))
