# SPDX-License-Identifier: BSD-3-Clause
"""Directories that survive builds, for `RUN --mount=type=cache`: a user's own, one per name, evicted like all else.

mounts/<uid>/<hash of the name>/data         what steps see
mounts/<uid>/<hash of the name>/about.json   the name and how much is in it; its time is that of the last use
mounts/<uid>/<hash of the name>-<number>/    further ones, while a step that shares with nobody has the first
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.errors import FileProblem, StoreBusy
from kedge.image.store.image_records import read_fields
from kedge.image.store.layout import Layout, hash_text
from kedge.image.store.lease import Patience, acquire
from kedge.image.store.use_marks import Use
from kedge.system.files import explained
from kedge.system.private_files import find_intruder

_DATA, _ABOUT = "data", "about.json"
_MOST_PRIVATE = 64  # directories of one name at the same time


@frozen
class OpenedMount:
    """A directory that a step may use."""

    path: Path
    is_new: bool  # nothing was in it before: it may be filled from elsewhere


class CacheMounts:
    """The directories of one cache that are this user's."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @contextlib.contextmanager
    def open(
        self, name: str, sharing: str = "shared", *, mode: int = 0o755, notify: Callable[[str], None] | None = None
    ) -> Iterator[OpenedMount]:
        """The directory of that name, for the block.

        `sharing` is as in Dockerfiles: `shared` gives it to all at once, `locked` to one after the other, and with
        `private` who comes while another has it gets a directory of its own. A new one has the permissions `mode`.
        """
        with contextlib.ExitStack() as held:
            folder = self._choose(name, sharing, notify, held)
            held.enter_context(Use(self._layout, folder.name))
            opened = self._make(folder, name, mode)
            try:
                yield opened
            finally:
                self._note(folder, name)

    def _choose(
        self, name: str, sharing: str, notify: Callable[[str], None] | None, held: contextlib.ExitStack
    ) -> Path:
        first = self._own_folder() / hash_text(name)
        if sharing == "shared":
            return first
        if sharing == "locked":
            held.enter_context(self._lock(first, Patience(notify=notify)))
            return first
        for number in range(_MOST_PRIVATE):
            folder = first if not number else first.with_name(f"{first.name}-{number}")
            with contextlib.suppress(StoreBusy):
                held.enter_context(self._lock(folder, Patience(limit=0.0)))
                return folder
        raise StoreBusy(
            f"{_MOST_PRIVATE} builds use the cache mount '{name}' at the same time",
            hint="wait for one of them to end, or use sharing=shared",
        )

    def _lock(self, folder: Path, patience: Patience) -> contextlib.AbstractContextManager[object]:
        self._layout.folder("leases")
        name = f"mount-{os.getuid()}-{folder.name}"
        lease = acquire(self._layout.lease(name), self._layout.folder("tmp"), lambda: False, patience)
        assert lease is not None  # nothing cancels the wait
        return lease

    def _own_folder(self) -> Path:
        """The user's directory; in a shared cache somebody else could have made it."""
        folder = self._layout.folder("mounts") / str(os.getuid())
        with explained(folder):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            reason = find_intruder(os.lstat(folder))
        if reason:
            raise FileProblem(
                f"cannot use {folder} for cache mounts: {reason}",
                context={"path": str(folder)},
                hint="remove it, or choose another cache directory with KEDGE_CACHEDIR",
            )
        return folder

    def _make(self, folder: Path, name: str, mode: int) -> OpenedMount:
        data = folder / _DATA
        with explained(data):
            folder.mkdir(mode=0o700, exist_ok=True)
            try:
                data.mkdir()
            except FileExistsError:
                is_new = not any(data.iterdir())
            else:
                data.chmod(mode)
                is_new = True
        if is_new or not (folder / _ABOUT).exists():
            self._write_about(folder, name, 0)
        return OpenedMount(data, is_new)

    def _note(self, folder: Path, name: str) -> None:
        """Note how much is in it; a failure must not fail a step that succeeded."""
        with contextlib.suppress(OSError, FileProblem):
            from kedge.system.tree_walk import measure_files  # late: only those who mount it need it

            self._write_about(folder, name, measure_files(folder / _DATA))

    def _write_about(self, folder: Path, name: str, size: int) -> None:
        self._layout.write(folder / _ABOUT, json.dumps({"name": name, "size": size}).encode() + b"\n")


@frozen
class MountRecord:
    """A directory in the cache, as listings show it."""

    path: Path
    name: str
    size: int
    used: float


def list_mounts(layout: Layout) -> Iterator[MountRecord]:
    """Yield all directories of all users, as far as they may be read."""
    for user in _list_folders(layout.root / "mounts"):
        for folder in _list_folders(user):
            fields = read_fields(folder / _ABOUT) or {}
            size = fields.get("size")
            with contextlib.suppress(OSError):
                about = folder / _ABOUT if fields else folder
                used = about.stat().st_mtime
                yield MountRecord(folder, str(fields.get("name", "?")), size if isinstance(size, int) else 0, used)


def _list_folders(folder: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
