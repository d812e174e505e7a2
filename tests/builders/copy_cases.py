# SPDX-License-Identifier: BSD-3-Clause
"""Cases of COPY and ADD: a context, a base, instructions, and what they leave in the image. For kedge and others.

A tree is a table: bytes are a file, `-> X` is a link, None a directory; a tuple adds a mode. What an image holds is
described the same way for every builder: kind, mode, owner, and content or target.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Entry = bytes | str | None | tuple[bytes | None, int]
Tree = Mapping[str, Entry]

CONTEXT: Tree = {
    "a.txt": b"a",
    "b.txt": b"b",
    "run.sh": (b"#!/bin/sh\n", 0o755),
    "secret": (b"s", 0o600),
    "dir/one": b"1",
    "dir/sub/two": b"2",
    "dir/sub/three.log": b"3",
    "private/key": b"k",
    "private": (None, 0o700),
    "empty": None,
    "odd name [1].txt": b"odd",
    "link": "-> a.txt",
    "dirlink": "-> dir",
    "out": "-> /etc/hostname",
    "dir/inner": "-> one",
}
BASE: Tree = {
    "etc/passwd": b"root:x:0:0::/root:/bin/sh\nalice:x:1000:1001::/home/alice:/bin/sh\n",
    "etc/group": b"root:x:0:\nstaff:x:50:\n",
    "app/old": b"old",
    "app": (None, 0o750),
    "app/sub/keep": b"keep",
    "usr/lib/lib.so": b"lib",
    "lib": "-> usr/lib",
    "srv/link": "-> ../data",
    "data/file": b"data",
    "target.txt": b"old target",
    "totarget": "-> target.txt",
}


@dataclass(frozen=True)
class CopyCase:
    """Instructions, and the paths that they add or change with what stands there."""

    name: str
    lines: str
    expected: Mapping[str, str] = field(default_factory=dict)
    error: str = ""  # a part of the message, where it is refused
    ignore: str = ""  # .dockerignore
    differs: str = ""  # why another builder's result may differ


def write_tree(root: Path, tree: Tree) -> None:
    """Make the files of a table."""
    root.mkdir(parents=True, exist_ok=True)
    modes: dict[Path, int] = {}
    for name, entry in tree.items():
        path = root / name
        content, mode = entry if isinstance(entry, tuple) else (entry, None)
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, str):
            path.symlink_to(content.removeprefix("-> "))
        else:
            path.write_bytes(content)
            path.chmod(0o644)
        if mode is not None:
            modes[path] = mode
    for folder, names, _ in os.walk(root):
        for name in names:
            if not (path := Path(folder, name)).is_symlink():
                path.chmod(0o755)
    for path, mode in modes.items():
        path.chmod(mode)


def describe_entry(status_mode: int, owner: tuple[int, int], content: bytes | str) -> str:
    """`f 644 0:0 text`: one file as a line."""
    kind = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l", stat.S_IFIFO: "p"}[stat.S_IFMT(status_mode)]
    text = content if isinstance(content, str) else content.decode(errors="replace")
    mode = "" if kind == "l" else f" {stat.S_IMODE(status_mode):o}"
    return f"{kind}{mode} {owner[0]}:{owner[1]} {text}".rstrip()


CASES = (
    CopyCase("file to a new path", "COPY a.txt /new/place", {"new": "d 755 0:0", "new/place": "f 644 0:0 a"}),
    CopyCase("file into a directory", "COPY a.txt /app", {"app/a.txt": "f 644 0:0 a"}),
    CopyCase("file with a slash", "COPY a.txt /new/", {"new": "d 755 0:0", "new/a.txt": "f 644 0:0 a"}),
    CopyCase("modes are kept", "COPY run.sh secret /", {"run.sh": "f 755 0:0 #!/bin/sh", "secret": "f 600 0:0 s"}),
    CopyCase(
        "contents of a directory",
        "COPY dir /app",
        {
            "app/one": "f 644 0:0 1",
            "app/inner": "l 0:0 one",
            "app/sub/two": "f 644 0:0 2",
            "app/sub/three.log": "f 644 0:0 3",
        },
    ),
    CopyCase("mode of a directory is that of new ones", "COPY private /p", {"p": "d 755 0:0", "p/key": "f 644 0:0 k"}),
    CopyCase(
        "mode of a directory below is the source's",
        "COPY --exclude=[^p]* . /x/\nCOPY --exclude=* . /y/",
        {"x": "d 755 0:0", "x/private": "d 700 0:0", "x/private/key": "f 644 0:0 k", "y": "d 755 0:0"},
        differs="--exclude is newer than some builders",
    ),
    CopyCase("empty directory", "COPY empty /e", {"e": "d 755 0:0"}),
    CopyCase("a link that is named is followed", "COPY link /x", {"x": "f 644 0:0 a"}),
    CopyCase(
        "a link to a directory that is named is followed",
        "COPY dirlink/sub /x",
        {"x": "d 755 0:0", "x/two": "f 644 0:0 2", "x/three.log": "f 644 0:0 3"},
    ),
    CopyCase(
        "wildcards",
        "COPY *.txt /t/",
        {
            "t": "d 755 0:0",
            "t/a.txt": "f 644 0:0 a",
            "t/b.txt": "f 644 0:0 b",
            "t/odd name [1].txt": "f 644 0:0 odd",
        },
    ),
    CopyCase(
        "wildcards below",
        "COPY dir/*/t* /t/",
        {
            "t": "d 755 0:0",
            "t/two": "f 644 0:0 2",
            "t/three.log": "f 644 0:0 3",
        },
    ),
    CopyCase("escaped brackets", 'COPY ["odd name [[]1].txt", "/o"]', {"o": "f 644 0:0 odd"}),
    CopyCase("owner by numbers", "COPY --chown=5:6 a.txt /new/x", {"new": "d 755 5:6", "new/x": "f 644 5:6 a"}),
    CopyCase("owner by names", "COPY --chown=alice:staff a.txt /x", {"x": "f 644 1000:50 a"}),
    CopyCase("owner by a name alone", "COPY --chown=alice a.txt /x", {"x": "f 644 1000:1001 a"}),
    CopyCase("owner by a number alone", "COPY --chown=7 a.txt /x", {"x": "f 644 7:7 a"}),
    CopyCase("mode in octal", "COPY --chmod=640 a.txt /x", {"x": "f 640 0:0 a"}),
    CopyCase(
        "mode in letters",
        "COPY --chmod=u=rwX,go=rX dir/sub /x/",
        {"x": "d 755 0:0", "x/two": "f 644 0:0 2", "x/three.log": "f 644 0:0 3"},
        differs="letters are newer than some builders",
    ),
    CopyCase("links of the destination are followed", "COPY a.txt /srv/link/x", {"data/x": "f 644 0:0 a"}),
    CopyCase("a link to a directory as destination", "COPY a.txt /srv/link", {"data/a.txt": "f 644 0:0 a"}),
    CopyCase("a link to a file as destination", "COPY a.txt /totarget", {"target.txt": "f 644 0:0 a"}),
    CopyCase(
        "a file in place of a link in a directory",
        "COPY a.txt /x/\nCOPY link /x/a.txt",
        {
            "x": "d 755 0:0",
            "x/a.txt": "f 644 0:0 a",
        },
    ),
    CopyCase("replaces a file", "COPY a.txt /app/old", {"app/old": "f 644 0:0 a"}),
    CopyCase(
        ".dockerignore",
        "COPY . /c/",
        {
            "c": "d 755 0:0",
            "c/b.txt": "f 644 0:0 b",
            "c/dir": "d 755 0:0",
            "c/dir/sub": "d 755 0:0",
            "c/dir/sub/two": "f 644 0:0 2",
        },
        ignore="*\n!b.txt\n!dir/sub\n**/*.log\n",
    ),
    CopyCase(
        "working directory",
        "WORKDIR /w/x\nCOPY a.txt .",
        {
            "w": "d 755 0:0",
            "w/x": "d 755 0:0",
            "w/x/a.txt": "f 644 0:0 a",
        },
    ),
    CopyCase(
        "several sources",
        "COPY a.txt dir b.txt /m/",
        {
            "m": "d 755 0:0",
            "m/a.txt": "f 644 0:0 a",
            "m/b.txt": "f 644 0:0 b",
            "m/one": "f 644 0:0 1",
            "m/inner": "l 0:0 one",
            "m/sub": "d 755 0:0",
            "m/sub/two": "f 644 0:0 2",
            "m/sub/three.log": "f 644 0:0 3",
        },
    ),
    CopyCase(
        "text in the recipe",
        "COPY <<one <<two /t/\nfirst\none\nsecond\ntwo",
        {
            "t": "d 755 0:0",
            "t/one": "f 644 0:0 first",
            "t/two": "f 644 0:0 second",
        },
    ),
    CopyCase(
        "text as one file",
        "COPY --chmod=755 <<EOF /usr/bin/tool\n#!/bin/sh\nEOF",
        {
            "usr/bin": "d 755 0:0",
            "usr/bin/tool": "f 755 0:0 #!/bin/sh",
        },
    ),
    CopyCase(
        "with parents",
        "COPY --parents dir/sub/two a.txt /p/",
        {
            "p": "d 755 0:0",
            "p/a.txt": "f 644 0:0 a",
            "p/dir": "d 755 0:0",
            "p/dir/sub": "d 755 0:0",
            "p/dir/sub/two": "f 644 0:0 2",
        },
        differs="--parents is newer than some builders",
    ),
    CopyCase(
        "with parents from a pivot",
        "COPY --parents ./dir/./sub/* /p/",
        {
            "p": "d 755 0:0",
            "p/sub": "d 755 0:0",
            "p/sub/two": "f 644 0:0 2",
            "p/sub/three.log": "f 644 0:0 3",
        },
        differs="--parents is newer than some builders",
    ),
    CopyCase(
        "with exclusions",
        "COPY --exclude=**/*.log --exclude=inner dir /x/",
        {
            "x": "d 755 0:0",
            "x/one": "f 644 0:0 1",
            "x/sub": "d 755 0:0",
            "x/sub/two": "f 644 0:0 2",
        },
        differs="--exclude is newer than some builders",
    ),
    CopyCase(
        "a directory through a link of the image",
        "COPY dir/sub /lib/",
        {
            "usr/lib/two": "f 644 0:0 2",
            "usr/lib/three.log": "f 644 0:0 3",
        },
    ),
    CopyCase("nothing there", "COPY nothing /x", error="does not exist in the build context"),
    CopyCase("above the context", "COPY ../../etc/hostname /x", error="does not exist in the build context"),
    CopyCase("a link that leads out", "COPY out /x", error="is a link to /etc/hostname, which is not in"),
    CopyCase("left out by a pattern", "COPY a.txt /x", error="is left out of the build context by", ignore="*.txt\n"),
    CopyCase(
        "a directory in the way of a file", "COPY a.txt /x/sub/\nCOPY a.txt /x/sub/a.txt/\n", error="not a directory"
    ),
    CopyCase("a file in place of a directory", "COPY dir/sub/two /x/two/y\nCOPY dir/sub /x", error="is a directory"),
    CopyCase("many files and no directory", "COPY *.txt /x", error="files cannot all be copied to /x"),
    CopyCase("unknown user", "COPY --chown=nobody a.txt /x", error="the image has no user 'nobody'"),
    CopyCase("a mode that is none", "COPY --chmod=999 a.txt /x", error="is not a mode"),
)
