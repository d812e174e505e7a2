# SPDX-License-Identifier: BSD-3-Clause
"""A registry with a small stand-in for the images that the examples begin with, and a user who builds and runs them.

The stand-in has this host's Python, shell and Open MPI. PyTorch, Lightning, matplotlib, NumPy and mpi4py are this
host's too, from PyPI, and are bound into every container: an image with them would take a minute to make. Its `pip`
and `apt-get` find everything installed.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders import layers as build
from tests.builders.containers import Runner, as_user, each_role, give_to
from tests.builders.images import make_config
from tests.builders.mpi_images import find_programs
from tests.builders.once import make_once
from tests.builders.pypi_tools import require_tool
from tests.fakes.registry import FakeRegistry
from tests.requirements import REPOSITORY, require_program

_IMAGES = (
    *(("nvidia/pytorch", "24.03-py3"), ("nvidia/cuda", "12.4.1-base-ubuntu22.04")),
    ("library/ubuntu", "24.04"),
)
_PROGRAMS = ("sh", "true", "cat", "ls", "env", "chmod", "mkdir", "cp", "ln", "rm")
_SCRIPTS = {
    "apt-get": "echo nothing to install",
    "pip": 'if [ "$1" = list ]; then echo torch==2.4.1; fi',
    "torchrun": 'exec python3 -m torch.distributed.run "$@"',
}
_INSIDE = "/opt/packages"
# what wheels take from the system, and no program here needs
_LIBRARIES = (
    *("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libm.so.6", "libz.so.1", "libffi.so.8"),
    *("libstdc++.so.6", "libgcc_s.so.1"),
)


@dataclass(frozen=True, slots=True)
class ExampleUser:
    """Has kedge on PATH, and a copy of the examples."""

    runner: Runner
    registries: Path
    packages: Path

    def copy_example(self, name: str) -> Path:
        """The directory of an example, which the user may write to."""
        folder = self.runner.folder / name
        if not folder.exists():
            shutil.copytree(REPOSITORY / "examples" / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        return give_to(self.runner, folder)

    def run(self, command: str, folder: Path, *, seconds: int = 240) -> tuple[int, str]:
        """How a line of a shell ends, and what it prints."""
        done = subprocess.run(
            as_user(self.runner.uid, ["bash", "-c", command]),
            cwd=folder,
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        return done.returncode, done.stdout

    def read(self, command: str, folder: Path) -> str:
        """What a command that succeeds prints."""
        status, output = self.run(command, folder)
        assert status == 0, f"{command}\nstatus {status}\n{output[-3000:]}"
        return output

    def compare_recipes(self, name: str) -> list[str]:
        """Build the Dockerfile; the files in which its image differs from NAME.sif, but for those that describe it."""
        folder = self.copy_example(name)
        self.read(f"kedge build -t {name}:docker -f Dockerfile . && [ -e {name}.sif ]", folder)
        found = json.loads(self.read(f"kedge image diff --json {name}:docker {name}.sif 2>errors", folder))
        return [each["path"] for each in found["files"] if not each["path"].startswith("/.singularity.d")]

    def _variables(self) -> dict[str, str]:
        return self.runner.variables(
            {
                "PATH": f"{self.runner.folder / 'bin'}:/usr/bin:/bin",
                "CONTAINERS_REGISTRIES_CONF": str(self.registries),
                "KEDGE_BIND": f"{self.packages}:{_INSIDE}:ro",
                "KEDGE_SITE": "local",
                "OMP_NUM_THREADS": "1",
                "LANG": "C.UTF-8",
            }
        )


def open_user(tool: str) -> Iterator[ExampleUser]:
    """A fixture's body; `tool` names the Python packages."""
    (packages,) = require_tool(tool).parent.glob("lib/python3*/site-packages")
    for runner in each_role("user"):
        os.chown(runner.folder, runner.uid, runner.uid)
        with FakeRegistry() as registry:
            _serve(registry, make_once("pytorch-standin", _make_layer))
            yield ExampleUser(_add_kedge(runner), _write_rules(runner, registry), packages)


def _make_layer(place: Path) -> None:
    """The files of the stand-in as a tar, and as the layer that it becomes."""
    memory = io.BytesIO()
    for runner in each_role("user"):
        folder = _pack(runner)
        with tarfile.open(fileobj=memory, mode="w") as archive:
            for path in sorted(folder.iterdir()):
                if path.name != ".singularity.d":
                    archive.add(path, path.name)
    place.mkdir()
    (place / "tar").write_bytes(memory.getvalue())
    (place / "layer").write_bytes(build.compress(memory.getvalue()))


def _pack(runner: Runner) -> Path:
    """The stand-in's files."""
    folder = runner.home / "standin"
    programs = ["/usr/bin/python3", *_PROGRAMS, *(require_program(name) for name in find_programs("openmpi"))]
    runner.read("pull", "--sandbox", str(folder), f"host:{','.join(programs)}")
    for name, line in _SCRIPTS.items():
        (folder / "usr/bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / "usr/bin" / name).chmod(0o755)
    for name in _LIBRARIES:
        source = Path(f"/usr/lib/{os.uname().machine}-linux-gnu", name)
        target = folder / str(source)[1:]
        if source.exists() and not target.exists():
            shutil.copy(source, target)
    (folder / "usr/bin/python").symlink_to("python3")
    (folder / "usr/local/bin").mkdir(parents=True, exist_ok=True)
    (folder / "usr/bin/mpirun").unlink(missing_ok=True)
    (folder / "usr/bin/mpirun").symlink_to("mpirun.openmpi")
    return folder


def _serve(registry: FakeRegistry, made: Path) -> None:
    """Make the files the one layer of each image."""
    tar, layer = (made / "tar").read_bytes(), (made / "layer").read_bytes()
    variables = ["PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH={_INSIDE}"]
    config = make_config([tar], {"Env": variables, "Cmd": ["/bin/sh"]})
    for name, tag in _IMAGES:
        registry.add_image(name, tag, [layer], config)


def _add_kedge(runner: Runner) -> Runner:
    program = runner.folder / "bin/kedge"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kedge "$@"\n')
    program.chmod(0o755)
    return runner


def _write_rules(runner: Runner, registry: FakeRegistry) -> Path:
    """nvcr.io and docker.io are the registry in this process."""
    path = runner.folder / "registries.conf"
    rule = '[[registry]]\nprefix = "{}"\nlocation = "{}"\ninsecure = true\n'
    path.write_text("".join(rule.format(name, registry.host) for name in ("nvcr.io", "docker.io")))
    return path
