# SPDX-License-Identifier: BSD-3-Clause
"""A reader at a terminal: each command is typed when a prompt is there, in whatever shell the one before has opened.

`srun --pty bash`, `qrsh` and `singularity shell` begin a shell, `exit` ends it; the reader types on, as people do.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.requirements import require_program

# what shells of the tutorials' reader print when they are ready; those in containers have prompts of their own
READY = r"<ready \u@\h> "
STARTUP = (
    f"PS1='{READY}'\nPS2=''\nPROMPT_COMMAND=''\nunset MAILCHECK HISTFILE\nbind 'set enable-bracketed-paste off'\n"
    """bind '"\\t": self-insert'\n"""
)
_PROMPT = re.compile(r"(?:<ready [^>]*> |(?:Apptainer|Singularity|kedge|Kedge)> |(?:^|\n)[^\n]{0,60}[$#] )\Z")
_STATUS = re.compile(r"\[status (\d+)\]")
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\0\a]")  # what moves the cursor, and asks where it is
_QUIET = 0.15  # seconds without output after which a prompt is one
_STUCK = 5.0  # seconds without output after which a shell that waits to be continued is continued


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a command."""

    status: int
    text: str
    prompt: str  # of the shell that is there now


class Session:
    """A shell on a terminal; use it with `with`."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], cwd: Path) -> None:
        self._ours, theirs = pty.openpty()
        words = [require_program("setsid"), "--ctty", *argv]
        variables = {**environ, "TERM": "dumb"}
        self._process = subprocess.Popen(words, env=variables, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)

    def __enter__(self) -> Session:
        self._wait(_PROMPT, 30)
        return self

    def __exit__(self, *details: object) -> None:
        os.close(self._ours)  # all that reads from this terminal gets a hang-up
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def type(self, text: str, *keys: tuple[str, str], timeout: float = 90) -> Answer:
        """Type a command; `keys` are pairs of what is asked for and what is typed then."""
        self._send(text)
        said = ""
        for question, reply in keys:
            said += self._wait(re.compile(question), timeout)
            self._send(reply)
        said += self._wait(_PROMPT, timeout)
        self._send('echo "[status $?]"')
        told = self._wait(_STATUS, 30, quiet=0)
        match = _STATUS.search(told)
        assert match is not None
        after = told[match.end() :]
        prompt = after if _PROMPT.search(after) else self._wait(_PROMPT, 30, quiet=0)
        return Answer(int(match[1]), said, prompt.strip())

    def _send(self, text: str) -> None:
        os.write(self._ours, text.encode() + b"\n")

    def _continue_shell(self) -> None:
        """Slurm's salloc gives its shell the terminal; a shell that asked for it before has stopped, and stays so."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(os.tcgetpgrp(self._ours), signal.SIGCONT)

    def _wait(self, pattern: re.Pattern[str], timeout: float, quiet: float = _QUIET) -> str:
        """All that is printed until the pattern is found, and nothing more comes for a moment: output may look so."""
        end = time.monotonic() + timeout
        text, last = "", time.monotonic()
        while True:
            if pattern.search(text) and time.monotonic() - last >= quiet:
                return text
            assert time.monotonic() < end, f"nothing more came within {timeout} s:\n{text[-4000:]}"
            if not select.select([self._ours], [], [], 0.05)[0]:
                if time.monotonic() - last > _STUCK:
                    self._continue_shell()
                    last = time.monotonic()
                continue
            try:
                piece = os.read(self._ours, 65536)
            except OSError as problem:
                raise AssertionError(f"the shell has ended:\n{text[-4000:]}") from problem
            text, last = _CONTROLS.sub("", text + piece.decode(errors="replace")), time.monotonic()
