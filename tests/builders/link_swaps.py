# SPDX-License-Identifier: BSD-3-Clause
"""A tree whose owner exchanges a directory for a link while kedge reads it: at a chosen step, or all the time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from kedge.errors import KedgeError
from tests.builders.containers import as_user
from tests.requirements import require_program

KEY = "-----the key that nobody else may see-----"
DECOY = "-----nothing, but as long as the key is-----"
KEY_FILE = ".ssh/id_ed25519"

_LOOP = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif
static int exchange(char **names) {
    return renameat2(AT_FDCWD, names[1], AT_FDCWD, names[2], RENAME_EXCHANGE);
}
int main(int count, char **names) {
    char event[4096];
    int watch = inotify_init();
    if (count < 3 || (count > 3 && inotify_add_watch(watch, names[3], IN_OPEN) < 0)) return 1;
    if (count == 3 && exchange(names)) return perror("renameat2"), 1;
    puts("begun"), fflush(stdout);
    if (count > 3 && (read(watch, event, sizeof event) < 0 || exchange(names))) return 1;
    for (;;) count > 3 ? pause() : (exchange(names), usleep(20));
}
"""


class Scene:
    """A home with a key, and a tree in which `taken` is exchanged for what stands `aside`.

    `way`: a link takes the place of the directory `above` the one with the key, of that `folder`, or of the `file`; a
    `pipe` that of the file; or the directory is `moved` into the home.
    """

    def __init__(self, place: Path, way: str, *, closed: bool = False) -> None:
        self.home = place / "home"
        self.tree = place / "tree"
        self._way = way
        self._is_taken = False
        plant(self.home, KEY)
        plant(self.tree / "sub", DECOY)
        for name in ("a/first", "z"):
            (self.tree / name).parent.mkdir(exist_ok=True)
            (self.tree / name).write_text(name)
        if closed:  # what nobody can rename a file in, or a file
            (self.tree / "sub" / (KEY_FILE if way in ("file", "pipe") else ".ssh")).chmod(0o277)
        key = self.home / KEY_FILE
        targets = {"above": self.home, "folder": key.parent, "file": key}
        inner = {"folder": "sub/.ssh", "file": f"sub/{KEY_FILE}", "pipe": f"sub/{KEY_FILE}"}.get(way, "sub")
        self._taken, self._aside, self._spare = self.tree / inner, place / "aside", place / "spare"
        if way in targets:
            self._aside.symlink_to(targets[way])
        elif way == "pipe":
            os.mkfifo(self._aside)
        else:
            self._aside = self.home / "moved"

    def exchange(self) -> None:
        """Do it, or undo it."""
        self._is_taken = not self._is_taken
        if self._way == "moved":
            pair = (self._taken, self._aside)
            pair[not self._is_taken].rename(pair[self._is_taken])
            return
        self._taken.rename(self._spare)
        self._aside.rename(self._taken)
        self._spare.rename(self._aside)

    def settle(self) -> None:
        """Let the tree be as it was."""
        if self._is_taken:
            self.exchange()

    def read_modes(self) -> list[int]:
        """The modes of the home, its directory of keys and the key."""
        return [path.stat().st_mode for path in (self.home, self.home / ".ssh", self.home / KEY_FILE)]


def plant(folder: Path, text: str) -> Path:
    """A key in a directory."""
    path = folder / KEY_FILE
    path.parent.mkdir(mode=0o700, parents=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def read_under_attack(
    scene: Scene, read: Callable[[Path], bytes], moments: tuple[int, ...]
) -> tuple[bytes | KedgeError, int]:
    """What is read of the tree while it is exchanged before each call of the kernel whose number is a moment.

    Returns also how many calls there were.
    """
    calls = 0

    def count(frame: FrameType, event: str, function: object) -> None:
        nonlocal calls
        if _is_call_of_kernel(frame, event, function):
            calls += 1
            if calls in moments:
                scene.exchange()

    sys.setprofile(count)
    try:
        return read(scene.tree), calls
    except KedgeError as problem:
        return problem, calls
    finally:
        sys.setprofile(None)


def _is_call_of_kernel(frame: FrameType, event: str, function: object) -> bool:
    """Functions of `os`, methods of what os.scandir gives, and calls by ctypes, which are seen in libc.py only."""
    if event == "c_call":
        owner = getattr(function, "__self__", None)
        return getattr(function, "__module__", "") == "posix" or type(owner).__module__ == "posix"
    return event == "call" and frame.f_code.co_filename.endswith("system/libc.py")


@contextlib.contextmanager
def exchanging(names: tuple[Path, Path], uid: int, program: Path, trigger: Path | None = None) -> Iterator[None]:
    """Exchange two names all the time for the block, as a user; with a `trigger` once, when somebody opens that.

    What it exchanged is put back then: the first one is no link.
    """
    words = [str(program), *map(str, names), *([str(trigger)] if trigger else [])]
    with exchanging_by(as_user(uid, words)):
        yield
    if names[0].is_symlink():
        spare = names[1].with_name("spare")
        for old, new in ((names[0], spare), (names[1], names[0]), (spare, names[1])):
            old.rename(new)


@contextlib.contextmanager
def exchanging_by(argv: list[str], **named: object) -> Iterator[None]:
    """The same by a command line, which says that it has begun."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **named) as loop:  # type: ignore[call-overload]
        try:
            assert loop.stdout.readline() == "begun\n"
            yield
            assert loop.poll() is None
        finally:
            loop.kill()


def compile_loop(place: Path) -> Path:
    """The program that exchanges two names, without libraries."""
    program, source = place / "exchange", place / "exchange.c"
    if not program.exists():
        source.write_text(_LOOP)
        subprocess.run([require_program("gcc"), "-static", "-O1", "-o", str(program), str(source)], check=True)
        program.chmod(0o755)
    return program
