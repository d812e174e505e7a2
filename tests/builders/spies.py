# SPDX-License-Identifier: BSD-3-Clause
"""Another user of the machine, who reads the command lines of all processes, over and over: what `ps` shows to all."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.builders.containers import as_user
from tests.requirements import require_root

SPY = 1509
_LOOK = """
import os, sys
seen = set()
print("looks", flush=True)
while True:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read()
            except OSError:
                continue
            if line and line not in seen:
                seen.add(line)
                print(line.hex(), flush=True)
"""
# in a variable of a process, or in an order on a command line, as it once was
_TOKEN = re.compile(rb'(?:\AKEDGE_LAUNCH_TOKEN=|"token": ?")([^"\0]+)')


class Spy:
    """What was seen so far, and which tokens the watched launches had, as root can find them out."""

    def __init__(self) -> None:
        self.lines: set[bytes] = set()
        self.tokens: set[bytes] = set()
        self.mark = secrets.token_hex(8)

    @property
    def variables(self) -> dict[str, str]:
        """To be set for a launch: by it its processes are known from those of others."""
        return {"WATCHED_BY": self.mark}

    def find(self, word: bytes | str) -> list[str]:
        """The command lines that hold a word, as it is or in base64."""
        wanted = word.encode() if isinstance(word, str) else word
        return [line.decode(errors="replace") for line in self.lines if wanted in line or wanted in _open(line)]


def _open(line: bytes) -> bytes:
    """The words that are base64, as what they stand for."""
    opened = []
    for word in line.split(b"\0"):
        with contextlib.suppress(binascii.Error):
            opened.append(base64.b64decode(word, altchars=b"-_", validate=True))
    return b"\0".join(opened)


@contextlib.contextmanager
def watched_command_lines() -> Iterator[Spy]:
    """An ordinary user looks while the block runs; the result is whole at its end."""
    require_root()
    spy, is_over = Spy(), threading.Event()
    words = as_user(SPY, [sys.executable, "-I", "-c", _LOOK])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "looks\n"
        threads = [threading.Thread(target=_note_lines, args=(spy, watcher.stdout))]
        threads += [threading.Thread(target=_note_tokens, args=(spy, is_over))]
        for thread in threads:
            thread.start()
        try:
            yield spy
        finally:
            is_over.set()
            watcher.kill()
            for thread in threads:
                thread.join()


def _note_lines(spy: Spy, output: Iterable[str]) -> None:
    for line in output:
        if line.endswith("\n"):  # the last one may be cut
            spy.lines.add(bytes.fromhex(line))


def _note_tokens(spy: Spy, is_over: threading.Event) -> None:
    """Root sees the variables of all."""
    while not is_over.wait(0.02):
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                variables = (folder / "environ").read_bytes().split(b"\0")
                lines = [*variables, _read_line(folder)] if f"WATCHED_BY={spy.mark}".encode() in variables else []
                spy.tokens.update(found[1] for line in lines for found in _TOKEN.finditer(line))


def _read_line(folder: Path) -> bytes:
    line = (folder / "cmdline").read_bytes()
    return line + b"\0" + _open(line)
