# SPDX-License-Identifier: BSD-3-Clause
"""Builds for tests: recipes over busybox, which need no network, and what `kedge build` says of them."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, give_to, make_sandbox

# A Dockerfile's beginning: an image with a shell, from nothing.
SHELL = 'FROM scratch AS base\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "--install", "-s", "/bin"]\n'


@dataclass(frozen=True, slots=True)
class Workshop:
    """A user with a context, in which recipes are written and built."""

    runner: Runner
    context: Path

    @classmethod
    def open(cls, runner: Runner) -> Workshop:
        """A context with busybox in it."""
        context = runner.home / "context"
        context.mkdir()
        (context / "busybox").write_bytes(read_busybox())
        (context / "busybox").chmod(0o755)
        return cls(runner, give_to(runner, context))

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

    def list_builds(self) -> list[str]:
        """What builds have left on the node."""
        return sorted(path.name for path in (self.runner.folder / "node/builds").glob("*"))
