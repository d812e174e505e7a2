# SPDX-License-Identifier: BSD-3-Clause
"""Contents of files kept in a hidden directory beside the target until it is known where in the tree they belong."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from kedge.model.tree import Buffer
from kedge.posix.confined_paths import open_folder, remove_tree
from kedge.posix.files import explained, temporary_beside

_PER_FOLDER = 4096  # files per directory: huge directories are slow on cluster file systems
_HOLE = 65536  # runs of zeros from this size on become holes


class ContentSpool:
    """A ContentSink; a context manager that removes what nobody moved away."""

    def __init__(self, target: Path) -> None:
        self._spool_target = target
        self._count = 0
        self._spool_folder = -1
        self.place = temporary_beside(target)
        with explained(self.place):
            self.place.mkdir(mode=0o700)

    def __enter__(self) -> ContentSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def abort(self) -> None:
        """Remove what is left; idempotent."""
        self.close()

    def close(self) -> None:
        """Remove what is left; idempotent."""
        if self._spool_folder >= 0:
            os.close(self._spool_folder)
            self._spool_folder = -1
        with explained(self.place):
            remove_tree(self.place)

    def add(self, data: Buffer) -> object:
        """Spool a small file."""
        with explained(self._spool_target):
            token, file = self._create()
            try:
                _write_all(file, data)
            finally:
                os.close(file)
        return token

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        """Spool a file; long runs of zeros become holes."""
        with explained(self._spool_target):
            token, file = self._create()
        try:
            ends_in_hole = False
            for chunk in chunks:
                ends_in_hole = len(chunk) >= _HOLE and not chunk[0] and not bytes(chunk).strip(b"\0")
                with explained(self._spool_target):
                    if ends_in_hole:
                        os.lseek(file, len(chunk), os.SEEK_CUR)
                    else:
                        _write_all(file, chunk)
            if ends_in_hole:
                with explained(self._spool_target):
                    os.ftruncate(file, size)
        finally:
            os.close(file)
        return token

    def _create(self) -> tuple[int, int]:
        token = self._count
        self._count += 1
        if token % _PER_FOLDER == 0:
            if self._spool_folder >= 0:
                os.close(self._spool_folder)
            folder = self.place / str(token // _PER_FOLDER)
            folder.mkdir(mode=0o700)
            self._spool_folder = open_folder(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return token, os.open(str(token), flags, 0o600, dir_fd=self._spool_folder)


def name_token(token: int) -> bytes:
    """Where a content is below the spool's directory."""
    return b"%d/%d" % (token // _PER_FOLDER, token)


def _write_all(file: int, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
