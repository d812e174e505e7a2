# SPDX-License-Identifier: BSD-3-Clause
"""Contents of files kept in a hidden directory beside the target until it is known where in the tree they belong."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from kedge.base.tree import Buffer
from kedge.errors import KedgeError
from kedge.system.confined_paths import open_folder, remove_tree
from kedge.system.files import explained, temporary_beside
from kedge.system.undivided import Undivided
from kedge.system.writer_processes import LARGEST_FILE, WriterProcesses

# Files per directory: huge directories are slow on cluster file systems. Some are filled side by side, a few files to
# each in turn, because the kernel lets only one process at a time make files in a directory.
_PER_FOLDER = 4096
_FOLDERS = 8
_IN_TURN = 64
_HOLE = 65536  # runs of zeros from this size on become holes


class ContentSpool:
    """A ContentSink; a context manager that removes what nobody moved away.

    `writers` processes make the files; with none, or where none can be had, the caller's own does.
    """

    def __init__(self, target: Path, *, writers: int = 0) -> None:
        self._spool_target = target
        self._count = 0
        self._spool_folder = -1
        self.place = temporary_beside(target)
        self._writers: WriterProcesses | None = None
        try:
            with explained(self.place):
                self.place.mkdir(mode=0o700)
                self._spool_folder = open_folder(self.place)
            with Undivided():
                self._writers = WriterProcesses.start(self._spool_folder, name_token, writers)
        except BaseException:  # by a signal's handler: nobody will close this spool
            with contextlib.suppress(KedgeError):  # what went wrong before says more
                self.close()
            raise

    def __enter__(self) -> ContentSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def abort(self) -> None:
        """Remove what is left; idempotent."""
        self.close()

    def settle(self) -> None:
        """Wait until every content is in its file; none may be added afterwards."""
        if self._writers is not None:
            with explained(self._spool_target):
                self._writers.finish()
            self._writers = None

    def close(self) -> None:
        """Remove what is left; idempotent."""
        if self._writers is not None:
            self._writers.kill()
            self._writers = None
        folder, self._spool_folder = self._spool_folder, -1  # a signal may end this, and it is called again
        if folder >= 0:
            os.close(folder)
        with explained(self.place):
            remove_tree(self.place)

    def add(self, data: Buffer) -> object:
        """Spool a small file."""
        with explained(self._spool_target):
            token = self._take_token()
            if self._writers is not None and len(data) <= LARGEST_FILE:
                self._writers.write(token, data)
                return token
            file = self._create(token)
            try:
                _write_all(file, data)
            finally:
                os.close(file)
        return token

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        """Spool a file; long runs of zeros become holes."""
        with explained(self._spool_target):
            token = self._take_token()
        if self._writers is not None:
            self._hand_over(self._writers, token, size, chunks)
            return token
        with explained(self._spool_target):
            file = self._create(token)
        try:
            ends_in_hole = False
            for chunk in chunks:
                ends_in_hole = _is_hole(chunk)
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

    def _hand_over(self, writers: WriterProcesses, token: int, size: int, chunks: Iterable[Buffer]) -> None:
        offset = 0
        for chunk in chunks:
            if not _is_hole(chunk):
                with explained(self._spool_target):
                    writers.write_piece(token, offset, chunk)
            offset += len(chunk)
        with explained(self._spool_target):
            writers.end_file(token, size)

    def _take_token(self) -> int:
        token = self._count
        self._count += 1
        if token % (_PER_FOLDER * _FOLDERS) == 0:
            first = token // _PER_FOLDER
            for folder in range(first, first + _FOLDERS):
                os.mkdir(b"%d" % folder, 0o700, dir_fd=self._spool_folder)
        return token

    def _create(self, token: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name_token(token), flags, 0o600, dir_fd=self._spool_folder)


def name_token(token: int) -> bytes:
    """Where a content is below the spool's directory."""
    folder = token // (_PER_FOLDER * _FOLDERS) * _FOLDERS + token // _IN_TURN % _FOLDERS
    return b"%d/%d" % (folder, token)


def _is_hole(chunk: Buffer) -> bool:
    """Whether a chunk is a long run of zeros."""
    return len(chunk) >= _HOLE and not chunk[0] and not bytes(chunk).strip(b"\0")


def _write_all(file: int, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
