# SPDX-License-Identifier: BSD-3-Clause
"""The directories and files of a cache, and how files come and go there.

blobs/<algorithm>/<2 digits>/<hex>   verified content; its mtime is when it was last used
partial/<hex>                        a download that is not complete, kept to be resumed
images/<hex>.sif, .json              a converted image and its record; the record's mtime is its last use
records/<hex>.json                   the digest of an image that a user has instead of the cache, and where
names/<hex>.json                     what a reference meant when it was last asked
steps/<key>.json                     the layer that a build step gave; its mtime is when it was last used
mounts/<uid>/<hex>/                  a directory that steps of a user's builds share (`cache_mounts.py`)
digests/<hex>                        digests of the files of a build context (`file_digests.py`)
facts/<hex>                          what was read of an image or a host (`file_facts.py`)
leases/, using/                      who works on what, who reads what
tmp/                                 files on their way to one of the above, named after the process that made them
attempts/                            marks of pulls under way, read when one was killed
held/<owner>/                        symbolic links to images that a job was promised
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.errors import FileProblem
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explain, explained
from kedge.system.owned_names import own_name, owner_is_gone

_STALE_TEMPORARY = 86400.0  # seconds after which a temporary file of an unreachable owner is removed
_CACHEDIR_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# Made by kedge; back-up programs may pass it over.\n"


@frozen
class Layout:
    """The directories of one cache; `shared` lets the umask decide who else may use it, otherwise only the owner."""

    root: Path
    shared: bool = False

    def blob(self, digest: Digest) -> Path:
        """Where the blob stands, if it is there."""
        return self.root / "blobs" / digest.algorithm / digest.hex[:2] / digest.hex

    def partial(self, digest: Digest) -> Path:
        """Where what has arrived of the blob stands."""
        return self.root / "partial" / digest.hex

    def image(self, key: str) -> Path:
        """Where the converted image with that key stands."""
        return self.root / "images" / f"{hash_text(key)}.sif"

    def lease(self, name: str) -> Path:
        """The lease of a blob (its hex digest) or an image (the hash of its key)."""
        return self.root / "leases" / name

    @property
    def folder_mode(self) -> int:
        """Permissions of directories, before the umask."""
        return 0o777 if self.shared else 0o700

    @property
    def file_mode(self) -> int:
        """Permissions of files, before the umask."""
        return 0o666 if self.shared else 0o600

    def folder(self, *names: str) -> Path:
        """A directory of the cache, made if it is missing."""
        path = self.root.joinpath(*names)
        if not path.is_dir():
            self._make_folders(path)
        return path

    def _make_folders(self, path: Path) -> None:
        is_new = not self.root.is_dir()
        missing = [parent for parent in (path, *path.parents) if not parent.is_dir()]
        for parent in reversed(missing):
            try:
                with contextlib.suppress(FileExistsError):
                    parent.mkdir(mode=self.folder_mode)  # those above the cache, too: others could replace it
            except OSError as problem:
                raise explain_root(problem, self.root, parent) from problem
        if is_new:
            with contextlib.suppress(OSError):
                (self.root / "CACHEDIR.TAG").write_bytes(_CACHEDIR_TAG)

    def temporary(self, label: str) -> Path:
        """A fresh path below tmp/; the file is not made."""
        return self.folder("tmp") / own_name(label)

    def write(self, target: Path, data: bytes, *, is_lasting: bool = True) -> None:
        """Replace a small file in one step; readers see the old content or the new.

        What can be fetched again, and whose readers find damage, need not outlast a power failure: waiting for the disk
        takes longer than asking a registry.
        """
        temporary = self.temporary("write")
        try:
            with explained(target):
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, self.file_mode)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    if is_lasting:
                        os.fsync(file.fileno())
                temporary.replace(target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def sweep(self) -> int:
        """Remove what killed processes left: temporary files, marks, leases; of other hosts after a day."""
        with contextlib.suppress(OSError):
            leases = self.root / "leases"
            if os.listdir(leases):  # noqa: PTH208 - no entry is needed
                from kedge.image.store.lease import drop_dead_leases  # late: few who sweep find any

                drop_dead_leases(leases, self.folder("tmp"))
        return sum(_sweep_folder(self.root / name) for name in ("tmp", "using", "leases"))


def _sweep_folder(folder: Path) -> int:
    freed = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            gone = owner_is_gone(entry.name)
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if gone or (gone is None and time.time() - status.st_mtime > _STALE_TEMPORARY):
                    remove_tree(Path(entry.path))
                    freed += status.st_size
    return freed


def hash_text(text: str) -> str:
    """A file name for any text."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_listed(path: Path) -> bool:
    """Whether the file exists, asking the server: an NFS client may remember for a minute that it does not."""
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        return any(entry.name == path.name for entry in entries)
    return False


def sync_folder(folder: Path) -> None:
    """Make a rename in the directory durable, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def explain_root(problem: OSError, root: Path, path: Path) -> Exception:
    """The error for a cache that a system call cannot use; its hint tells how to choose another directory."""
    plain = explain(problem, path)
    if not isinstance(plain, FileProblem):
        return plain
    return FileProblem(
        f"cannot use the cache {root}: {plain.message}",
        context=plain.context,
        hint="choose another directory with KEDGE_CACHEDIR or --cache-dir",
    )
