# SPDX-License-Identifier: BSD-3-Clause
"""Builds for tests: recipes over busybox, which need no network, and what `kedge build` says of them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kedge.base.tree import Node, walk
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.squashfs.reader import SquashReader
from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.once import make_once

# A Dockerfile's beginning: an image with a shell, from nothing.
SHELL = 'FROM scratch AS base\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "--install", "-s", "/bin"]\n'


@dataclass(frozen=True, slots=True)
class Workshop:
    """A user with a context, in which recipes are written and built."""

    runner: Runner
    context: Path

    @classmethod
    def open(cls, runner: Runner, *, knows: str = SHELL) -> Workshop:
        """A context with busybox in it; the steps of `knows`, a Dockerfile, are in the cache."""
        context = runner.home / "context"
        context.mkdir()
        (context / "busybox").write_bytes(read_busybox())
        (context / "busybox").chmod(0o755)
        shop = cls(runner, give_to(runner, context))
        if knows:
            shop.learn(knows)
        return shop

    def learn(self, recipe: str) -> None:
        """Put the steps of a Dockerfile into the cache, as a build of this user would: they are done once in a run."""
        name = f"steps-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
        kept = make_once(name, lambda place: keep_steps(recipe, place))
        for path in kept.rglob("*"):
            target = self.runner.folder / "cache" / path.relative_to(kept)
            if path.is_dir():
                target.mkdir(mode=0o700, exist_ok=True)
            elif not target.exists():
                shutil.copyfile(path, target)
                target.chmod(0o600)
            os.chown(target, self.runner.uid, self.runner.uid)

    def write(self, name: str, text: str) -> Path:
        """A file of the context."""
        path = self.context / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        give_to(self.runner, path.parent)
        os.chown(path, self.runner.uid, self.runner.uid)
        return path

    def make_base(self) -> Path:
        """A sandbox to begin a definition file with."""
        folder = self.runner.folder / "base"
        return folder if folder.exists() else give_to(self.runner, make_sandbox(folder))

    def start(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """`kedge build` in the context."""
        return self.runner.run("build", *words, env=env, cwd=self.context)

    def begin(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """The same, which goes on beside the test."""
        return subprocess.Popen(
            self.runner.argv("build", *words), env=self.runner.variables(env), cwd=self.context,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def build(self, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
        """A build that succeeds: what --json says."""
        done = self.start("--json", *words, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def states(self, *words: str, env: dict[str, str] | None = None) -> list[str]:
        """How the steps of a build ended."""
        return [step["state"] for step in self.build(*words, env=env)["steps"]]

    def exec(self, image: str, *words: str) -> str:
        """What a program in a built image prints."""
        return self.runner.read("exec", "--no-home", str(self.context / image), *words)

    def look(self, image: str, *paths: str) -> tuple[dict[str, Node], str]:
        """The files of a built SIF, and the text of some: read in this process, far cheaper than by a container."""
        file = io.BytesIO((self.context / image).read_bytes())
        partition = SifReader(file, image).root_partition()
        with SquashReader(file, partition.offset, partition.size) as reader:
            nodes = {f"/{os.fsdecode(path)}": node for path, node in walk(reader.read_tree())}
            return nodes, b"".join(data for path in paths for data in reader.chunks(nodes[path])).decode()

    def read(self, image: str, *paths: str) -> str:
        """The text of files in a built SIF, one after the other."""
        return self.look(image, *paths)[1]

    def list_builds(self) -> list[str]:
        """What builds have left on the node."""
        return sorted(path.name for path in (self.runner.folder / "node/builds").glob("*"))


@pytest.fixture
def warm_shop() -> Iterator[Workshop]:
    """For files that name it `shop`: an ordinary user's, empty for each test, for whom `kedge build` need not start."""
    for runner in each_role("user", is_warm=True):
        yield Workshop.open(runner)


def keep_steps(recipe: str, place: Path) -> None:
    """Leave what the cache of an ordinary user knows of a Dockerfile's steps when they are done."""
    for runner in each_role("user", is_warm=True):
        shop = Workshop.open(runner, knows="")
        shop.write("Dockerfile", recipe)
        shop.build("--format", "oci", "out", "Dockerfile")
        for name in ("blobs", "steps"):
            shutil.copytree(runner.folder / "cache" / name, place / name)
