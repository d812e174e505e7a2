# SPDX-License-Identifier: BSD-3-Clause
"""A user who builds the tutorials' recipes over Debian: recipes are written, built as both kinds, run and compared."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders.containers import Runner, each_role, give_to
from tests.builders.debian_bases import make_debian, unpack_as

KINDS = ("Definition", "Dockerfile")
# what a run of apt leaves that no two have in common, and what describes an image
CHANGING = (".singularity.d", "var/log", "var/cache", "var/lib/apt", "etc/hosts", "etc/resolv.conf")


@dataclass(frozen=True)
class Classroom:
    """A user with recipes in a directory, and a directory with Debian to begin with."""

    runner: Runner
    folder: Path
    base: Path

    def write(self, name: str, text: str) -> None:
        """A file beside the recipes; `{base}` is replaced by the directory with Debian."""
        path = self.folder / name
        path.write_text(text.replace("{base}", str(self.base)))
        os.chown(path, self.runner.uid, self.runner.uid)

    def start(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`kedge WORDS` in the directory of the recipes."""
        return subprocess.run(
            self.runner.argv(*words),
            env=self.runner.variables(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    def kedge(self, *words: str) -> str:
        """What a command that succeeds prints."""
        done = self.start(*words)
        assert done.returncode == 0, f"{words}\n{done.stdout[-1500:]}{done.stderr[-3000:]}"
        return done.stdout

    def build_both(self, name: str) -> None:
        """An image of both kinds of a recipe."""
        for kind in KINDS:
            self.kedge("build", f"{kind}.{name}.sif", f"{kind}.{name}")

    def read_trees(self, name: str) -> list[dict[str, tuple[str, object]]]:
        """What both kinds of a recipe give, which must have been built: nothing runs."""
        trees = []
        for kind in KINDS:
            target = self.folder / f"tree-{kind}.{name}"
            self.kedge("build", "--sandbox", str(target), f"{kind}.{name}")
            trees.append(read_tree(target))
        return trees


def open_classroom() -> Iterator[Classroom]:
    """A fixture's body."""
    archive = make_debian("bookworm")
    for runner in each_role("user"):
        os.chown(runner.folder, runner.uid, runner.uid)
        base = unpack_as(runner, archive, runner.folder / "base")
        folder = runner.folder / "recipes"
        folder.mkdir()
        yield Classroom(runner, give_to(runner, folder), base)


def read_tree(folder: Path) -> dict[str, tuple[str, object]]:
    """Kind, mode and content by path; contents by size where files are large."""
    tree: dict[str, tuple[str, object]] = {}
    for path in folder.rglob("*"):
        name, status = str(path.relative_to(folder)), path.lstat()
        if name.startswith(CHANGING):
            continue
        content: object = ""
        if stat.S_ISLNK(status.st_mode):
            content = str(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = _read_content(path) if status.st_size < 100_000 else status.st_size
        tree[name] = (oct(status.st_mode), content)
    return tree


def _read_content(path: Path) -> bytes:
    """The bytes of a file; of compiled Python without the time of its source, which pip sets when it installs."""
    content = path.read_bytes()
    return content[:8] + content[12:] if path.suffix == ".pyc" else content
