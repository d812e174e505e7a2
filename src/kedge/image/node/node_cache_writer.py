# SPDX-License-Identifier: BSD-3-Clause
"""Changes the node cache: unpacks an image once however many processes ask, and removes images to make room.

The cache is on a disk of this node, so flock is reliable there. `node_cache.py` describes its files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import JsonValue, frozen
from kedge.base.progress import Progress, Silent
from kedge.base.size import format_size
from kedge.errors import KedgeError, NoSpace
from kedge.image.node_cache import (
    BOOT,
    CONFIG,
    FILES,
    IMAGES,
    INFO,
    LOCK,
    OWNERS,
    ROOT,
    SIZE,
    choose_node_directory,
    describe_path,
    describe_storage,
    is_complete,
    node_directory,
    read_boot,
    read_identity,
    reference_path,
    reference_record,
)
from kedge.system.confined_paths import remove_tree
from kedge.system.files import TEMPORARY_PREFIX, explained, temporary_beside, write_atomically
from kedge.system.host.limits import read_limits
from kedge.system.host.space import free_space, require_space
from kedge.system.owned_names import owner_is_gone
from kedge.system.settings import Settings

if TYPE_CHECKING:
    from kedge.image.image_file import ImageFile

_REMEDY = "KEDGE_NODEDIR={}/kedge-$USER"
_NO_UNPACKING = "--root-from squashfuse"
_USUAL_LIMIT = 50 << 30  # bytes: a share of a large disk is more than anybody wants to find there
_MOST_PATHS = 10  # of one file: hard links, and directories that are mounted twice
_MOST_RECORDS = 1000  # of files; each costs a hash again when it is gone
_DAY = 86400.0
_FIRST_FILES = 1 << 20  # bytes: what is written before it is known how much an image needs


@frozen
class _NodeEntry:
    """One image that is unpacked here."""

    identity: str
    source: str  # what it was unpacked from
    size: int
    used: float
    in_use: bool
    path: Path

    def as_dict(self) -> dict[str, object]:
        """The entry as `--json` prints it."""
        return {
            "kind": "unpacked",
            "name": self.source,
            "size": self.size,
            "used": round(self.used),
            "in_use": self.in_use,
            "path": str(self.path),
        }


@frozen
class Built:
    """What was unpacked: how much room it takes, and its OCI config where that is not in the image's file.

    `owners` is a table of what the files on this node do not say themselves.
    """

    size: int
    config: bytes = b""
    owners: bytes = b""


# Makes the directory it is given; before it writes it says how many bytes it needs.
Build = Callable[[Path, Callable[[int], None]], Built]


class NodeCache:
    """What is in the directory that settings and environment name."""

    def __init__(
        self, settings: Settings, progress: Progress | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self.environ = dict(os.environ if environ is None else environ)
        if settings.node_directory is not None:  # a flag, or the environment or a file once more
            self.environ["KEDGE_NODEDIR"] = str(settings.node_directory)
        self.place = Path(choose_node_directory(self.environ))
        self._settings = settings
        self._progress = progress or Silent()

    @property
    def images(self) -> Path:
        """The directory of the images."""
        return self.place / IMAGES

    @property
    def limit(self) -> int | None:
        """How much all images together may take; half of the room there, at most 50 GiB, unless somebody said so."""
        if self._settings.sources["node_limit"].kind != "default":
            return self._settings.node_limit
        room = free_space(self.place)
        return min((room.usable + sum(entry.size for entry in self._measure())) // 2, _USUAL_LIMIT)

    # -- finding

    def find(self, identity: str) -> Path | None:
        """The root of an image, if it is whole."""
        folder = self.images / identity
        return folder / ROOT if is_complete(str(folder)) else None

    def remember(self, reference: str, machine: str, identity: str, answer: str = "") -> None:
        """Note what a reference means; `answer` says whether that was asked now, and with which login."""
        path = Path(reference_path(str(self.place), reference, machine))
        with explained(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        text = f"{identity}\n{reference_record(reference, machine)}{answer}\n"
        write_atomically(path, text.encode("utf-8", "surrogateescape"), mode=0o600)

    def find_content(self, image: ImageFile) -> str:
        """The identity of what the file holds, where it was hashed in this state; empty where not."""
        return read_identity(str(self.place), image)

    def remember_content(self, image: ImageFile, identity: str) -> None:
        """Note what the file holds in this state, beside the other paths under which it was seen so."""
        path = self.place / FILES / image.state
        with explained(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        text = ""
        with contextlib.suppress(OSError):
            text = path.read_text("utf-8", "surrogateescape")
        first, *paths = text.split("\n")
        own = describe_path(image.path)
        others = [path for path in paths if path not in ("", own)] if first == identity else []
        lines = "".join(f"{line}\n" for line in (identity, *others[-_MOST_PATHS:], own))
        write_atomically(path, lines.encode("utf-8", "surrogateescape"), mode=0o600)

    def entries(self) -> list[_NodeEntry]:
        """Return all images, those used last first."""
        return self._describe_all(self._list_identities(), _read_mounts())

    def _list_identities(self) -> list[str]:
        with contextlib.suppress(OSError):
            names = [entry.name for entry in os.scandir(self.images) if entry.is_dir(follow_symlinks=False)]
            return [name for name in names if not name.startswith(TEMPORARY_PREFIX)]
        return []

    def _measure(self) -> list[_NodeEntry]:
        """All images, those used last first, without a look at who uses them: that reads the mounts of all processes.

        `remove` looks before it removes one.
        """
        return self._describe_all(self._list_identities(), None)

    def _describe_all(self, identities: list[str], mounts: bytes | None) -> list[_NodeEntry]:
        described = [self._describe(identity, mounts) for identity in identities]
        return sorted(described, key=lambda entry: (-entry.used, entry.identity))

    def _describe(self, identity: str, mounts: bytes | None) -> _NodeEntry:
        folder = self.images / identity
        about = _read_info(folder)
        size = 0
        with contextlib.suppress(OSError, ValueError):
            size = int((folder / SIZE).read_text())
        in_use = mounts is not None and _is_used(folder, mounts)
        return _NodeEntry(
            identity=identity,
            source=str(about.get("source", "?")),
            size=size,
            used=self._read_use(identity),
            in_use=in_use,
            path=folder,
        )

    def _read_use(self, identity: str) -> float:
        """When the image was last used; 0 if that is unknown."""
        with contextlib.suppress(OSError):
            return (self.images / identity / LOCK).stat().st_mtime
        return 0.0

    # -- making

    def make(self, identity: str, source: str, build: Build, *, force: bool = False) -> tuple[Path, bool]:
        """The root of the image that people call `source`, and whether it was unpacked now."""
        node_directory(self.environ)
        with explained(self.images):
            self.images.mkdir(mode=0o700, exist_ok=True)
        with self._alone(identity, source):
            found = self.find(identity)
            if found is not None and not force:
                return found, False
            self._sweep()
            self._drop_unused()
            if free_space(self.place).usable < _FIRST_FILES:
                self._evict(_FIRST_FILES)
            self._build(identity, source, build, force=force)
        return self.images / identity / ROOT, True

    def make_temporary(self, name: str, source: str, build: Build) -> Path:
        """The root of an image for one container, under a name of its process's own: nobody else looks for it."""
        node_directory(self.environ)
        with explained(self.images):
            self.images.mkdir(mode=0o700, exist_ok=True)
        self._sweep()
        self._build(name, source, build, force=False)
        return self.images / name / ROOT

    def require_place(self, least: int, source: str) -> None:
        """Make the folder, and raise NoSpace where not even `least` bytes could ever fit, before anything is read."""
        node_directory(self.environ)
        if not self._can_hold(least):
            self.make_room(least, source)

    def _build(self, identity: str, source: str, build: Build, *, force: bool) -> None:
        target = self.images / identity
        temporary = temporary_beside(target)
        began = round(time.time())
        try:
            with explained(self.place):
                temporary.mkdir(mode=0o700)
                (temporary / INFO).write_text(json.dumps({"source": source, "began": began, "identity": identity}))
                built = build(temporary / ROOT, lambda needed: self.make_room(needed, source))
                (temporary / SIZE).write_text(str(built.size))
                (temporary / BOOT).write_text(read_boot())
                (temporary / LOCK).touch(mode=0o600)
                if built.config:
                    (temporary / CONFIG).write_bytes(built.config)
                if built.owners:
                    (temporary / OWNERS).write_bytes(built.owners)
                if force or self.find(identity) is None:  # without locks somebody may have been faster
                    self._publish(temporary, target)
        except NoSpace as problem:
            is_here = str(problem.context.get("path", self.place)).startswith(str(self.place))
            if is_here and _NO_UNPACKING not in (problem.hint or ""):  # else it is the store that is full
                problem.hint = f"choose a larger disk: {_list_ways(source).format('DIRECTORY')}"
            raise
        finally:
            remove_tree(temporary)

    def _publish(self, temporary: Path, target: Path) -> None:
        if os.path.lexists(target):  # a broken one, or one to be replaced; containers that run from it keep it
            old = temporary_beside(target)
            target.rename(old)
            temporary.rename(target)
            if not _is_used(old, _read_mounts()):
                remove_tree(old)
            return
        try:
            temporary.rename(target)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # somebody else was faster, where there are no locks: it is the same image

    @contextlib.contextmanager
    def _alone(self, identity: str, source: str) -> Iterator[None]:
        """Be the only one that unpacks this image; others wait here, and find it afterwards."""
        path = self.images / f"{identity}.{LOCK}"
        while True:
            with explained(path):
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                self._wait(file, source)
                if not _is_same(file, path):  # somebody removed the file while we waited
                    continue
                with contextlib.suppress(OSError):  # it only says who; a full disk may have more room in a moment
                    os.ftruncate(file, 0)
                    os.pwrite(file, b"%d" % os.getpid(), 0)
                yield
                return
            finally:
                os.close(file)

    def _wait(self, file: int, source: str) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(file, 20, 0).decode("ascii", "replace")
            self._progress.note(f"waiting for process {who or '?'}, which is unpacking {source}")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as problem:
            # no locks (Lustre without `flock`): then several may unpack it, and the first to end counts
            self._progress.note(f"{self.place} has no file locks ({problem.strerror}): {source} may be unpacked twice")

    # -- room

    def make_room(self, needed: int, what: str) -> None:
        """Remove what nobody uses until `needed` bytes fit; NoSpace if they never do."""
        if self._can_hold(needed):  # else nothing is lost in vain
            self._evict(needed)
        self._require_memory(needed, what)
        require_space(self.place, needed, f"the unpacked {what}", self.environ, choice=_list_ways(what))

    def _can_hold(self, needed: int) -> bool:
        return free_space(self.place).usable + sum(entry.size for entry in self._measure()) >= needed

    def _evict(self, needed: int) -> None:
        """Remove what nobody uses, the longest unused first, until `needed` bytes fit or nothing is left."""
        entries = self._measure()
        held = sum(entry.size for entry in entries)
        limit = self.limit
        for entry in reversed(entries):
            is_over = limit is not None and held + needed > limit
            if not is_over and free_space(self.place).usable >= needed:
                break
            if self.remove(entry):
                held -= entry.size
                self._progress.note(
                    f"removed the unpacked {entry.source} ({format_size(entry.size)}) to make room on this node"
                )

    def _drop_unused(self) -> None:
        """Remove what nobody has used for `node_days`."""
        days = self._settings.node_days
        before = time.time() - days * _DAY if days else 0.0
        unused = [identity for identity in self._list_identities() if 0 < self._read_use(identity) < before]
        for entry in self._describe_all(unused, None):
            if self.remove(entry):
                self._progress.note(
                    f"removed the unpacked {entry.source} ({format_size(entry.size)}), unused for {days} days"
                )

    def _require_memory(self, needed: int, what: str) -> None:
        """Where the place is in memory, files there count as the job's own, and the kernel kills what exceeds that."""
        if describe_storage(str(self.place)) != "memory":
            return
        limits = read_limits()
        if limits.memory is not None and needed > limits.memory // 2:
            raise NoSpace(
                f"the unpacked {what} needs about {format_size(needed)} in {self.place}, which is in memory; this "
                f"job may use {format_size(limits.memory)} of memory ({limits.memory_from})",
                context={"path": str(self.place)},
                hint=f"choose a directory on a disk: {_list_ways(what).format('DIRECTORY')}",
            )

    def remove(self, entry: _NodeEntry) -> bool:
        """Remove an image unless somebody uses it; whether it was removed."""
        with contextlib.suppress(OSError), (entry.path / LOCK).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if _is_mounted(entry.path, _read_mounts()):
                return False
            away = temporary_beside(entry.path)
            entry.path.rename(away)  # whoever gets the lock after us sees that it is another file
            remove_tree(away)
            with contextlib.suppress(OSError):
                (self.images / f"{entry.identity}.{LOCK}").unlink()
            return True
        return False

    def clean(self, days: float | None, *, dry_run: bool) -> list[_NodeEntry]:
        """Remove what nobody uses and nobody used for so many days."""
        before = time.time() - (days or 0) * _DAY
        chosen = [entry for entry in self.entries() if not entry.in_use and (days is None or entry.used < before)]
        if dry_run:
            return chosen
        self._sweep()
        return [entry for entry in chosen if self.remove(entry)]

    def _sweep(self) -> None:
        """Remove what killed processes left."""
        with contextlib.suppress(OSError):
            left = [Path(entry.path) for entry in os.scandir(self.images) if entry.name.startswith(TEMPORARY_PREFIX)]
            for folder in left:
                if owner_is_gone(folder.name) and not _is_used(folder, _read_mounts()):
                    remove_tree(folder)
        self._sweep_records()

    def _sweep_records(self) -> None:
        """Forget files whose image is gone for a day, and the longest known of very many."""
        with contextlib.suppress(OSError):
            records = sorted((self.place / FILES).iterdir(), key=lambda path: path.lstat().st_mtime)
            surplus = records[: max(0, len(records) - _MOST_RECORDS)]
            for path in records:
                is_old = path.lstat().st_mtime < time.time() - _DAY
                identity = path.read_text("utf-8", "surrogateescape").partition("\n")[0]
                if path in surplus or (is_old and not (self.images / identity).is_dir()):
                    path.unlink()


@frozen
class _NodeReport(JsonValue):
    """What `kedge cache show` says of the images on this node."""

    json_names = (("kind", None),)

    place: Path
    kind: str  # disk, memory or network; empty when nothing is there yet
    count: int
    size: int
    limit: int | None


def report_node(settings: Settings) -> _NodeReport | None:
    """Look without changing anything; None where there is no place for images."""
    with contextlib.suppress(KedgeError):
        node = NodeCache(settings)
        entries = node.entries()
        kind = describe_storage(str(node.place)) or "not used yet"
        return _NodeReport(node.place, kind, len(entries), sum(entry.size for entry in entries), node.limit)
    return None


def list_node(settings: Settings) -> list[_NodeEntry]:
    """The images on this node; none where there is no place for them."""
    with contextlib.suppress(KedgeError):
        return NodeCache(settings).entries()
    return []


def _is_same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read_info(folder: Path) -> dict[str, object]:
    """What an image says of itself."""
    with contextlib.suppress(OSError, ValueError):
        # its time of access must stay: a cleaner of /tmp is to take it before anything else
        file = os.open(folder / INFO, os.O_RDONLY | os.O_NOATIME | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as stream:
            about = json.loads(stream.read(65536))
            return about if isinstance(about, dict) else {}
    return {}


def _is_used(folder: Path, mounts: bytes) -> bool:
    """Whether a container runs from it: one holds its lock, or has it mounted and closed all descriptors."""
    with contextlib.suppress(OSError), (folder / LOCK).open("rb+") as file:  # NFS locks only what can be written
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return _is_mounted(folder, mounts)


def _is_mounted(folder: Path, mounts: bytes) -> bool:
    """Whether a mount begins in an image, or an overlay names it; that one keeps the name that it had at first."""
    names = {folder.name, str(_read_info(folder).get("identity", folder.name))}
    return any(f"/{name}/{ROOT}".encode() + end in mounts for name in names for end in (b" ", b"/", b",", b":"))


def _read_mounts() -> bytes:
    """The tables of all mounts that processes of ours see, each namespace once where that can be told."""
    seen: set[str] = set()
    tables: set[bytes] = set()
    for process in os.scandir("/proc"):
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            namespace = ""
            with contextlib.suppress(PermissionError):  # a FUSE server is shielded; its mounts are not
                namespace = str(Path(f"{process.path}/ns/mnt").readlink())
            if not namespace or namespace not in seen:
                tables.add(Path(f"{process.path}/mountinfo").read_bytes())
            seen.add(namespace)
    return b"".join(tables)


def _list_ways(what: str) -> str:
    """Where else it can go, with `{}` for the place; only a file can be mounted instead."""
    own = "" if os.path.isfile(what) else "pull it to a file and "
    return f"{_REMEDY}, or {own}mount it instead: {_NO_UNPACKING}"
