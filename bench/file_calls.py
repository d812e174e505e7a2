# SPDX-License-Identifier: BSD-3-Clause
"""What strace saw, counted: calls that name a file, opens and reads, on the shared file system and on the node."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

TRACED = "trace=%file,read,pread64,readv,preadv,preadv2,getdents64"
_LINE = re.compile(r"^(?:\d+ +)?(?P<name>\w+)\((?P<words>.*)\) += (?P<result>-?\d+|0x[0-9a-f]+|\?)")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_DIRECTORY = re.compile(r"^(?:AT_FDCWD|\d+)<(?P<path>[^>]*)>")
_QUOTED = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"')
_READS = ("read", "pread64", "readv", "preadv", "preadv2", "getdents64")
_OPENS = ("open", "openat", "openat2", "execve", "execveat")


@dataclass(slots=True)
class Calls:
    """Calls of one kind of file system."""

    named: int = 0  # that name a file, found or not
    opened: int = 0  # of these, opens and programs started
    reads: int = 0
    bytes: int = 0

    def __add__(self, other: Calls) -> Calls:
        sums = (getattr(self, name) + getattr(other, name) for name in ("named", "opened", "reads", "bytes"))
        return Calls(*sums)


def count_calls(lines: Iterable[str], shared: str, begin: str = "") -> tuple[Calls, Calls]:
    """Calls to files below `shared` and to all others, of `strace -f -y`, from the start of the program `begin` on."""
    on_shared, on_node = Calls(), Calls()
    has_begun = not begin
    for line in _join_resumed(lines):
        match = _LINE.match(line)
        if match is None:
            continue
        name, words = match["name"], match["words"]
        has_begun = has_begun or (name == "execve" and begin in words)
        path = _find_path(name, words)
        if not has_begun or not path:
            continue
        counted = on_shared if path == shared or path.startswith(f"{shared}/") else on_node
        result = int(match["result"], 0) if match["result"] != "?" else 0
        if name in _READS:
            counted.reads += 1
            counted.bytes += max(0, result)
        else:
            counted.named += 1
            counted.opened += name in _OPENS and result >= 0
    return on_shared, on_node


def _find_path(name: str, words: str) -> str:
    """The file that a call is about; empty for a pipe, a socket or a descriptor alone."""
    directory = _DIRECTORY.match(words)
    if name in _READS:
        return directory["path"] if directory and directory["path"].startswith("/") else ""
    quoted = _QUOTED.search(words)
    if quoted is None or not quoted["text"]:
        return ""  # AT_EMPTY_PATH: the file is open already
    base = directory["path"] if directory else "/"
    return posixpath.normpath(posixpath.join(base, quoted["text"]))


def _join_resumed(lines: Iterable[str]) -> Iterable[str]:
    """Calls that another process interrupted, as one line again."""
    halves: dict[str, str] = {}
    for line in lines:
        if line.endswith("<unfinished ...>"):
            halves[line.split(maxsplit=1)[0]] = line.removesuffix("<unfinished ...>")
            continue
        match = _RESUMED.match(line)
        yield halves.pop(match["pid"], "") + match["rest"] if match else line
