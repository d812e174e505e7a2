# SPDX-License-Identifier: BSD-3-Clause
"""The log of a build: all that its steps print, with the values of secrets replaced.

Displays show a few lines of it. The file appears with the first output, and only the newest logs are kept.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from kedge.builds.request import StepLabel
from kedge.errors import KedgeError
from kedge.system.files import explained

_KEPT = 50  # logs
_KEPT_BYTES = 1 << 30
_LAST_LINES = 25
_LONGEST_LINE = 2000  # bytes of a line that errors show
_LONGEST_PIECE = 1 << 20  # bytes of a line in the log; a longer one is broken
_MASK = b"***"
_SHORTEST_SECRET = 4  # bytes; shorter ones are found in any text


class BuildLog:
    """One file, which several stages write at once; each line says which step printed it.

    A build goes on where the log cannot be written, as in a home without room, unless the user asked for this file.
    """

    def __init__(self, path: Path | None, folder: Path, warn: Callable[[str], None] = lambda _: None) -> None:
        self._wanted = path
        self._folder = folder
        self._warn = warn
        self._is_given_up = False
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self.path: Path | None = None  # once it is there

    def write(self, label: StepLabel, lines: Sequence[bytes]) -> None:
        """Add lines."""
        stage = f"{label.stage} " if label.stage else ""
        name = f"[{stage}{label.number}/{label.total}] ".encode("utf-8", "surrogateescape")
        with self._lock:
            if not self._is_given_up:
                self._write(b"".join(b"%s%s\n" % (name, line) for line in lines))

    def _write(self, data: bytes) -> None:
        try:
            if self._file is None:
                self._file = self._open()
            with explained(self.path or self._folder):
                while data:  # where room ends, a part is written before the error
                    data = data[self._file.write(data) :]
        except KedgeError as problem:
            if self._wanted is not None:
                raise
            self._is_given_up = True
            self._warn(f"{problem.message}; the log of this build is not complete")

    def _open(self) -> BinaryIO:
        path = self._wanted
        if path is None:
            with explained(self._folder):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _forget_old(self._folder)
            path = self._folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        with explained(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.path = path
        return os.fdopen(descriptor, "wb", buffering=0)

    def close(self) -> None:
        """Close the file; it stays."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def _forget_old(folder: Path) -> None:
    """Keep the newest logs, a few and not too large together."""
    size = 0
    with contextlib.suppress(OSError):
        for number, path in enumerate(sorted(folder.glob("*.log"), reverse=True), 1):
            size += path.stat().st_size
            if number >= _KEPT or size > _KEPT_BYTES:
                path.unlink()


class StepOutput:
    """Takes what a step prints: to the display as it comes, to the log by lines; remembers the last ones."""

    def __init__(
        self, label: StepLabel, log: BuildLog, show: Callable[[StepLabel, bytes], None], secrets: Sequence[bytes]
    ) -> None:
        self._label = label
        self._log = log
        self._show = show
        self._hide = _SecretMask(secrets)
        self._rest: list[bytes] = []  # pieces of a line that goes on
        self._rest_size = 0
        self.last: deque[str] = deque(maxlen=_LAST_LINES)

    def write(self, data: bytes) -> None:
        """Take a piece."""
        self._take(self._hide.add(data))

    def finish(self) -> None:
        """Take what is left: the last line need not end."""
        self._take(self._hide.finish())
        self._end_line()

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._show(self._label, data)
        first, *lines = data.split(b"\n")
        self._rest.append(first)
        self._rest_size += len(first)
        if lines:
            *lines, rest = (b"".join(self._rest), *lines)
            self._rest, self._rest_size = [rest], len(rest)
            self._keep(lines)
        if self._rest_size > _LONGEST_PIECE:
            self._end_line()

    def _end_line(self) -> None:
        line = b"".join(self._rest)
        self._rest, self._rest_size = [], 0
        if line:
            self._keep([line])

    def _keep(self, lines: list[bytes]) -> None:
        lines = [_show_bar(line) if b"\r" in line else line for line in lines]
        self._log.write(self._label, lines)
        self.last.extend(line[:_LONGEST_LINE].decode("utf-8", "replace") for line in lines[-_LAST_LINES:])


def _show_bar(line: bytes) -> bytes:
    """Return the last state of a progress bar."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class _SecretMask:
    """Replaces secrets in a stream, also those that two pieces share."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        values = {form for secret in secrets for form in (secret, secret.strip()) if len(form) >= _SHORTEST_SECRET}
        self._secrets = sorted(values, key=lambda value: (-len(value), value))
        self._held = b""

    def add(self, data: bytes) -> bytes:
        """What can be shown now."""
        if not self._secrets:
            return data
        text = self._held + data
        end = len(text) - max(_common_end(text, secret) for secret in self._secrets)
        for secret in self._secrets:  # none is cut in two
            start = text.find(secret, max(0, end - len(secret) + 1), end + len(secret))
            end = start if 0 <= start < end else end
        self._held = text[end:]
        return self._mask(text[:end])

    def finish(self) -> bytes:
        """Return what was held back: the beginning of a secret, which did not go on."""
        held, self._held = self._held, b""
        return self._mask(held)

    def _mask(self, text: bytes) -> bytes:
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text


def _common_end(text: bytes, secret: bytes) -> int:
    """How many bytes at the end of the text are the beginning of the secret."""
    longest = min(len(text), len(secret) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(secret[:length])), 0)


def choose_log_folder(environ: Mapping[str, str]) -> Path:
    """Where logs are kept."""
    from kedge.system.settings import xdg_directory

    return xdg_directory(environ, "XDG_STATE_HOME", ".local/state") / "builds"
