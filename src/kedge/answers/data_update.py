# SPDX-License-Identifier: BSD-3-Clause
"""Learning what new tags hold from the registry's own image configs: a few kB for each tag, and no layer.

What was learned is kept tag by tag, so an update that is interrupted or refused half-way has not been for nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.reference import Reference
from kedge.compat.contents.tag_filters import is_since, read_since
from kedge.compat.contents.tag_names import VERSION, read_tag, sort_names
from kedge.compat.data import learned_path
from kedge.compat.known_tables import Repository, find_repository
from kedge.compat.registry_traits import read_registry_traits
from kedge.compat.tables.learned import READ_FROM, has_all, make_row, write_rows
from kedge.compat.tables.load import Tables, load_tables, merge_rows, read_learned
from kedge.compat.tables.rows import NgcRelease
from kedge.errors import FileProblem, KedgeError, NetworkFailed, NoSpace, RateLimited, StoreBusy, UsageError
from kedge.image.registry.client import RegistryClient
from kedge.image.sources.resolve import resolve
from kedge.image.store.lease import Lease, Patience, acquire
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.files import explained, write_atomically
from kedge.system.private_files import make_private

DEFAULT_IMAGES = (
    "nvcr.io/nvidia/pytorch",
    "nvcr.io/nvidia/tensorflow",
    "nvcr.io/nvidia/jax",
    "nvcr.io/nvidia/cuda-dl-base",
)
DEFAULT_LIMIT = 24
_MOST = 1000  # tags of one image in one update, whatever is asked for
_PATIENCE = 30.0  # seconds to wait for another update
_NOTHING = Tables((), (), ())  # so that a row holds what the config says, and nothing that is known otherwise


@frozen
class UpdateRequest:
    """What to learn."""

    images: tuple[str, ...] = DEFAULT_IMAGES
    since: str = ""  # 24.03: older tags are left alone
    limit: int = DEFAULT_LIMIT  # tags of each image, the newest first
    dry_run: bool = False


@frozen
class ImageUpdate:
    """What became of one image."""

    image: str
    tags: int = 0  # how many it has
    wanted: tuple[str, ...] = ()  # those that the tables do not know in full, the newest first, up to the limit
    left: int = 0  # those beyond the limit
    learned: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # tag and reason
    problem: str = ""  # why its tags could not be listed


@frozen
class _UpdateResult:
    """What became of all of them; `stopped` says why the rest was not asked."""

    path: str
    images: tuple[ImageUpdate, ...]
    stopped: KedgeError | None = None

    @property
    def learned(self) -> int:
        """How many tags."""
        return sum(len(image.learned) for image in self.images)


def update_tables(workplace: Workplace, environ: Mapping[str, str], request: UpdateRequest) -> _UpdateResult:
    """Read the configs of tags that the tables do not know in full, and keep what they say."""
    if request.since:
        read_since(request.since)
    if not 0 < request.limit <= _MOST:
        raise UsageError(f"--limit takes a number from 1 to {_MOST}, not {request.limit}")
    path = learned_path(environ)
    shipped = load_tables()
    repositories = [find_repository(image, shipped) for image in request.images]
    with _open_learned(path, workplace, request) as learned, workplace.open_store() as store:
        update = _Update(workplace, store, learned, request)
        for repository in repositories:
            update.learn(repository)
            if update.stopped is not None:
                break
        return _UpdateResult(str(path), tuple(update.images), update.stopped)


class _Learned:
    """The learned rows, and their file, which one process at a time writes."""

    def __init__(self, path: Path, lease: Lease | None) -> None:
        self.path = path
        self._lease = lease
        rows, self.problems = read_learned(path)
        self.rows = {(row.image, row.tag): row for row in rows}

    def find(self, image: str, tag: str) -> NgcRelease | None:
        return self.rows.get((image, tag))

    def add(self, row: NgcRelease) -> None:
        """Keep a row, also on the disk; one that was learned of another architecture is completed."""
        assert self._lease is not None
        if not self._lease.confirm():
            raise StoreBusy(
                f"another update writes {self.path}, because this one stood still for too long",
                hint="run it again; what it learned so far is kept",
            )
        key = (row.image, row.tag)
        self.rows[key] = merge_rows(self.rows[key], row) if key in self.rows else row
        if self.problems:
            self._keep_damaged()
        write_atomically(self.path, write_rows(self.rows.values()))

    def _keep_damaged(self) -> None:
        """Before the first write: lines that cannot be read are not lost for whoever wrote them."""
        with contextlib.suppress(OSError):
            self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
        self.problems = ()


@contextlib.contextmanager
def _open_learned(path: Path, workplace: Workplace, request: UpdateRequest) -> Iterator[_Learned]:
    if request.dry_run:
        yield _Learned(path, None)
        return
    folder = path.parent
    with explained(folder):
        make_private(folder)
    patience = Patience(limit=_PATIENCE, notify=workplace.progress.note)
    lease = acquire(folder / "update.lease", folder, lambda: False, patience)
    assert lease is not None  # it waits, or raises
    with lease:
        learned = _Learned(path, lease)
        for problem in learned.problems[:3]:
            workplace.progress.warn(f"{problem.message}; the old file is kept as {path.name}.damaged")
        yield learned


class _Update:
    """One walk through images and their tags."""

    def __init__(self, workplace: Workplace, store: Store, learned: _Learned, request: UpdateRequest) -> None:
        self.images: list[ImageUpdate] = []
        self.stopped: KedgeError | None = None
        self._workplace, self._store, self._learned, self._request = workplace, store, learned, request
        self._architecture = workplace.platform.architecture
        self._tables = load_tables()

    def learn(self, repository: Repository) -> None:
        """Learn of one image: list its tags, choose, read."""
        with self._workplace.open_access() as access:
            client = RegistryClient(repository.registry, access)
            tags = self._list_tags(repository, client)
            if tags is not None:
                self._learn_tags(repository, tags, client)

    def _list_tags(self, repository: Repository, client: RegistryClient) -> list[str] | None:
        """List all tags of an image; None, with the reason noted, where they cannot be had."""
        try:
            return list(client.list_tags(repository.path))
        except KedgeError as problem:
            if isinstance(problem, RateLimited | NetworkFailed):
                self.stopped = problem
            self.images.append(ImageUpdate(repository.image, problem=problem.message))
            return None

    def _learn_tags(self, repository: Repository, tags: Sequence[str], client: RegistryClient) -> None:
        wanted = self._choose(repository.image, tags)
        chosen = tuple(wanted[: self._request.limit])
        learned: list[str] = []
        skipped: list[tuple[str, str]] = []
        try:
            if not self._request.dry_run:
                self._read_all(repository, chosen, learned, skipped, client)
        finally:
            left = len(wanted) - len(chosen)
            done = ImageUpdate(
                image=repository.image,
                tags=len(tags),
                wanted=chosen,
                left=left,
                learned=tuple(learned),
                skipped=tuple(skipped),
            )
            self.images.append(done)

    def _choose(self, image: str, tags: Sequence[str]) -> list[str]:
        """The releases that the tables do not know in full and nobody has read yet, the newest first."""
        names = [read_tag(tag, image) for tag in tags]
        names = [name for name in names if name.kind == VERSION and not name.is_jetson]
        if self._request.since:
            since = read_since(self._request.since)
            names = [name for name in names if is_since(name, since)]
        return [name.text for name in sort_names(names) if not self._is_known(image, name.text)]

    def _is_known(self, image: str, tag: str) -> bool:
        row = self._learned.find(image, tag)
        if row is not None and f"({self._architecture})" in row.source:
            return True
        return row is None and has_all(self._tables.find_release(image, tag))

    def _read_all(
        self,
        repository: Repository,
        tags: Sequence[str],
        learned: list[str],
        skipped: list[tuple[str, str]],
        client: RegistryClient,
    ) -> None:
        task = self._workplace.progress.task(f"configs of {repository.image}", len(tags), "tags")
        try:
            for tag in tags:
                try:
                    row = self._read(repository, tag, client)
                except (RateLimited, NetworkFailed) as problem:
                    self.stopped = problem
                    return
                except (FileProblem, NoSpace, StoreBusy):
                    raise
                except KedgeError as problem:
                    skipped.append((tag, problem.message))
                    continue
                finally:
                    task.advance(1)
                if row is None:
                    skipped.append((tag, "its config says nothing that the tables hold"))
                    continue
                self._learned.add(row)
                learned.append(tag)
        finally:
            task.finish()

    def _read(self, repository: Repository, tag: str, client: RegistryClient) -> NgcRelease | None:
        """The row of one tag: manifest and config, two or three requests."""
        reference = Reference.parse(f"docker://{repository.name}:{tag}")
        resolved = resolve(reference, self._workplace, self._store, client=client)
        traits = read_registry_traits(resolved, self._store, _NOTHING)
        machine = traits.architecture or self._architecture
        digest = resolved.manifest.config.digest
        source = f"{READ_FROM} {digest} ({machine}) read {time.strftime('%Y-%m-%d')}"
        return make_row(repository.image, tag, traits, source)
