# SPDX-License-Identifier: BSD-3-Clause
"""Runs tests on mutants: in copies of the tree, as an ordinary user, each in a process of its own.

That process is a fork of this one, which has loaded pytest and what else is slow to load, and nothing of the copy.
"""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutants import Mutant, make_mutant

_NOBODY = 65534  # a fault may delete or kill: not as root
_SLOW = ("pytest", "hypothesis.strategies", "hypothesis.internal.conjecture.engine", "unittest.mock")
_TIMES, _SPARE = 5, 20.0  # a mutant may take five times the time of the unmutated run, and 20 seconds
_MEMORY, _FILE = 12 << 30, 2 << 30  # bytes: a fault in a loop must not fill the machine
_LOADED = "ignore::pytest.PytestAssertRewriteWarning"  # of what is loaded already
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-W", _LOADED)


class TestsFailed(Exception):
    """The unmutated tests do not pass, so they can say nothing."""

    __test__ = False  # pytest takes it for tests


class Trial(NamedTuple):
    """How a mutant fared: killed, survived or timeout."""

    mutant: Mutant
    outcome: str
    seconds: float


class TreeCopy:
    """A copy of the repository, where one run of tests at a time goes on."""

    def __init__(self, place: Path, words: Sequence[str]) -> None:
        self.place = place
        self.tree = place / "tree"
        self._words = list(words)
        self._pristine: tuple[Path, bytes, int] | None = None
        self._pid = self._count = 0
        self._began = 0.0

    def fill(self, repository: Path) -> None:
        """Copy what git knows or would add."""
        git = ["git", "-c", f"safe.directory={repository}", "-C", str(repository)]
        words = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(words, capture_output=True, check=True, text=True).stdout.split("\0"):
            if name and (repository / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(repository / name, self.tree / name, follow_symlinks=False)
        _give_away(self.place)

    def another(self, number: int) -> TreeCopy:
        """A copy of this one, with what Python has compiled there."""
        other = TreeCopy(self.place.with_name(f"copy{number}"), self._words)
        shutil.copytree(self.tree, other.tree, symlinks=True)
        _give_away(other.place)
        return other

    def start(self, mutant: Mutant | None = None) -> None:
        """Run the tests on the tree, or on a mutant of it."""
        if mutant is not None:
            path = self.tree / mutant.file
            changed = path.stat().st_mtime_ns
            self._pristine = (path, path.read_bytes(), changed)
            path.write_text(make_mutant(path.read_text(encoding="utf-8"), mutant), encoding="utf-8")
            self._count += 1  # of another second each: what Python has compiled of one is not the next one's
            os.utime(path, ns=(changed, changed + self._count * 10**9))
        for name in ("tmp", "tree/.hypothesis"):  # what an earlier run left says nothing of this one
            shutil.rmtree(self.place / name, ignore_errors=True)
        (self.place / "tmp").mkdir()
        (self.place / "tmp").chmod(0o1777)
        self._began = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            _run_tests(self.place, [*_OPTIONS, *self._words], is_first=mutant is None)

    def poll(self, limit: float) -> tuple[str, float]:
        """How the run ended, and its seconds; empty while it goes on."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        seconds = time.monotonic() - self._began
        if not pid and seconds < limit:
            return "", seconds
        self.stop(is_over=bool(pid))
        return "timeout" if not pid else "killed" if status else "survived", seconds

    def stop(self, *, is_over: bool = False) -> None:
        """End the run and what it started, and put the source back."""
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if not is_over:
            os.waitpid(self._pid, 0)
        if self._pristine is not None:
            path, data, changed = self._pristine
            path.write_bytes(data)
            os.utime(path, ns=(changed, changed))
            self._pristine = None

    def measure(self) -> float:
        """The seconds that the tests take on the tree as it is; raises TestsFailed."""
        for _ in range(2):  # the first run compiles
            self.start()
            while not (ended := self.poll(3600))[0]:
                time.sleep(0.01)
            if ended[0] != "survived":
                raise TestsFailed((self.place / "output").read_text(errors="replace"))
        # No single test may take longer than all of them do: a fault often lets one wait for ever.
        self._words.append(f"--timeout={round(ended[1]) + 10}")
        return ended[1]


def try_mutants(first: TreeCopy, mutants: Sequence[Mutant], *, jobs: int, seconds: float) -> Iterator[Trial]:
    """Each of them, `jobs` at a time, as they end; `first` is measured and took so many seconds."""
    limit = _TIMES * seconds + _SPARE
    free = [first, *(first.another(number) for number in range(1, min(jobs, len(mutants))))]
    waiting, busy = deque(mutants), dict[TreeCopy, Mutant]()
    try:
        while waiting or busy:
            while waiting and free:
                copy, mutant = free.pop(), waiting.popleft()
                copy.start(mutant)
                busy[copy] = mutant
            for copy, mutant in list(busy.items()):
                outcome, took = copy.poll(limit)
                if outcome:
                    del busy[copy]
                    free.append(copy)
                    yield Trial(mutant, outcome, took)
            time.sleep(0.01)
    finally:
        for copy in busy:
            copy.stop()


def load_slow_modules() -> None:
    """Once, for all the processes that run tests."""
    for name in _SLOW:
        importlib.import_module(name)


def _give_away(place: Path) -> None:
    """To the user that the tests run as."""
    if os.geteuid() == 0:
        for path in (place, *place.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)


def _run_tests(place: Path, words: list[str], *, is_first: bool) -> None:
    """The rest of a forked process."""
    status = 1
    try:
        _enter(place)
        if not is_first:  # nothing compiled of a mutant may stay
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        import pytest

        status = int(pytest.main(words))
    except BaseException:  # this process must not go on as its parent would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _enter(place: Path) -> None:
    """Become a process of the copy, which knows nothing of the tree that the copy is of."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    output = os.open(place / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(place / "tree")
    os.environ["TMPDIR"] = str(place / "tmp")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE, _FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    here = str(Path(__file__).parents[2])
    sys.path[:] = [path for path in sys.path if path and path != here and not path.startswith(f"{here}/src")]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "kedge")]:
        del sys.modules[name]
