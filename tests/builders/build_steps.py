# SPDX-License-Identifier: BSD-3-Clause
"""Steps of builds for tests: an ordinary user's, in layers over a base or in one directory."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders.containers import Runner, as_user, each_role, give_to, make_sandbox
from tests.builders.warm_kedge import run_kedge
from tests.requirements import require_program

PROGRAM = Path(__file__).parents[1] / "programs/run_a_build_step.py"


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended."""

    status: int  # -1: kedge itself failed
    output: str
    error: str  # what kedge said
    pieces: int  # in how many the output came


@dataclass(slots=True)
class Steps:
    """Runs steps in one root after the other; `changes` is empty where the base itself is written."""

    runner: Runner
    base: Path
    changes: Path | None
    layers: list[Path] = field(default_factory=list)
    context: Path | None = None  # programs of the host are run, and this is where
    hidden: tuple[str, ...] = ()  # what they do not see of it
    inode: int = 0  # what it is known by, where that is not what is there
    setup: str = ""  # what root does to the host before, in a mount namespace of its own

    @property
    def upper(self) -> Path:
        """Where the changes of a step are."""
        return self.changes / "upper" if self.changes else self.base

    def run(self, *argv: str, named: Mapping[str, object] | None = None, **program: object) -> StepResult:
        """One step; `program` has the fields of StepProgram, `named` the arguments of run_build_step."""
        request = {
            "root": {
                "base": str(self.base),
                "layers": [str(layer) for layer in self.layers],
                "changes": str(self.changes or ""),
            },
            "program": {"argv": list(argv), **program},
            "named": dict(named or {}),
            **({"context": str(self.context), "hidden": self.hidden, "inode": self.inode} if self.context else {}),
        }
        done = self._start(request)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        error = result.get("error", {}).get("message", "")
        return StepResult(result.get("status", -1), result["output"], error, result["pieces"])

    def read(self, *argv: str, **named: object) -> str:
        """The output of a step that must succeed."""
        done = self.run(*argv, **named)  # type: ignore[arg-type]
        assert done.status == 0, f"{argv}: {done}"
        return done.output

    def stack(self) -> None:
        """Let what the last step changed be a layer, and the next one write to a new directory."""
        assert self.changes is not None
        self.layers.append(self.upper)
        self.changes = give(self.runner, self.changes.parent / f"changes{len(self.layers)}")

    def _start(self, request: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
        variables = self.runner.variables({"SECRET_OF_THE_HOST": "seen", "APPTAINER_BIND": "/etc:/mnt"})
        text = json.dumps(request)
        if not self.setup and "REFUSED" not in variables:
            user, folder = self.runner.uid, self.runner.home
            return run_kedge(
                [], environment=variables, folder=folder, user=user, input=text, timeout=900, program=PROGRAM
            )
        argv: Sequence[str] = as_user(self.runner.uid, [sys.executable, str(PROGRAM)])
        if self.setup:
            script = f"set -e; {self.setup}; exec {shlex.join(argv)}"
            argv = [require_program("unshare"), "--mount", "sh", "-c", script]
        return subprocess.run(
            argv,
            env=variables,
            cwd=self.runner.home,
            input=text,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )


def give(runner: Runner, folder: Path) -> Path:
    """An empty directory of the runner's user."""
    folder.mkdir(parents=True)
    os.chown(folder, runner.uid, runner.uid)
    return folder


def make_steps(way: str, role: str = "user") -> Iterator[Steps]:
    """A fixture's body: steps in `layers` over a base with more users than root, or in its own `directory`."""
    for runner in each_role(role):
        base = give_to(runner, make_sandbox(runner.folder / "base"))
        os.chown(base, runner.uid, runner.uid)
        (base / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\napp:x:1000:50:App:/srv/app:/bin/sh\n")
        (base / "etc/group").write_text("root:x:0:\nstaff:x:50:\naudio:x:29:app\n")
        yield Steps(runner, base, give(runner, runner.folder / "changes") if way == "layers" else None)
