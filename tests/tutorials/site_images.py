# SPDX-License-Identifier: BSD-3-Clause
"""Stand-ins of the images on the site pages: this host's Python on a small system, and the files that each image has.

NumPy is this host's, from PyPI, and is bound into every container; frameworks of gigabytes are not there. What starts
processes as PyTorch's launchers do, and what trains, are small programs (tests/programs), which really find each other.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.builders import layers as build
from tests.builders.containers import Runner
from tests.builders.images import make_config
from tests.builders.learning_images import add_libraries
from tests.builders.mpi_images import find_programs
from tests.builders.once import make_once
from tests.builders.pypi_tools import require_tool
from tests.requirements import REPOSITORY, require_program
from tests.tutorials.internet import Internet

PROGRAMS = REPOSITORY / "tests/programs"
PACKAGES = "/opt/packages"  # where the containers have NumPy
TRAINING = (PROGRAMS / "train_small.py").read_bytes()
STARTER = (PROGRAMS / "start_processes.py").read_bytes()
README = b"stand-in for the README of resnet50v1.5\n"
_OF_HOST = (
    *("sh", "bash", "cat", "ls", "env", "chmod", "mkdir", "cp", "mv", "rm", "ln", "hostname", "tar", "gzip"),
    *("make",),
)
_TORCH_1 = "opt/conda/lib/python3.8/site-packages/torch"
_RESNET = "workspace/examples/resnet50v1.5"


def find_packages() -> Path:
    """NumPy for the Python of this host."""
    (found,) = require_tool("arrays").parent.glob("lib/python3*/site-packages")
    return found


@dataclass(frozen=True, slots=True)
class HostLayers:
    """Layers with programs of this host, as tar and as registries have them: made once in a run, for all clusters."""

    python: tuple[bytes, bytes]
    mpi: dict[str, tuple[bytes, bytes]]  # by family


def pack_host_layers(runner: Runner) -> HostLayers:
    """Python with what wheels expect of every system, and the two MPIs."""
    mpi = {family: _pack_once(family, runner, find_programs(family)) for family in ("mpich", "openmpi")}
    return HostLayers(_pack_once("python", runner, ("/usr/bin/python3", *_OF_HOST)), mpi)


class SiteImages:
    """Serves images: a layer with Python that they share, and one with the files of each."""

    def __init__(self, layers: HostLayers, internet: Internet) -> None:
        self._internet = internet
        self._layers = layers

    def serve(
        self, name: str, files: Mapping[str, bytes], programs: Mapping[str, bytes], *, mpi: str = "", **section: object
    ) -> None:
        """An image with files and programs; `section` are the fields of its configuration."""
        members = [build.file(path, data) for path, data in files.items()]
        members += [build.file(path, data, mode=0o755) for path, data in programs.items()]
        own = build.layer(*members)
        layers = [self._layers.python, *([self._layers.mpi[mpi]] if mpi else []), (own, build.compress(own))]
        variables = ["PATH=/opt/conda/bin:/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH={PACKAGES}"]
        config = make_config([tar for tar, _ in layers], {"Env": variables, "Cmd": ["/bin/bash"], **section})
        self._internet.add_layers(name, [blob for _, blob in layers], config)

    def serve_pytorch(self, name: str, version: str) -> None:
        """PyTorch: with the program torchrun, or as NVIDIA had it before, installed by conda and without it."""
        if version.startswith("1.9"):
            self.serve(name, list_files_of_2021(version), {"opt/conda/bin/python": _call("/usr/bin/python3")})
            return
        place = "usr/local/lib/python3.10/dist-packages/torch"
        files = {f"{place}/version.py": f"__version__ = '{version}'\n".encode(), f"{place}/__init__.py": b""}
        files[f"{place}/distributed/run.py"] = STARTER
        starter = _call(f"/usr/bin/python3 /{place}/distributed/run.py")
        self.serve(name, files, {"usr/local/bin/torchrun": starter})


def list_files_of_2021(version: str) -> dict[str, bytes]:
    """PyTorch before `torchrun`, and NVIDIA's example beside it."""
    return {
        f"{_TORCH_1}/__init__.py": b"",
        f"{_TORCH_1}/version.py": f"__version__ = '{version}'\n".encode(),
        f"{_TORCH_1}/distributed/__init__.py": b"",
        f"{_TORCH_1}/distributed/launch.py": b'parser.add_argument("--use_env", action="store_true")\n',
        f"{_TORCH_1}/distributed/run.py": STARTER,
        f"{_RESNET}/README.md": README,
        f"{_RESNET}/main.py": TRAINING,
        f"{_RESNET}/multiproc.py": STARTER,
    }


def _call(words: str) -> bytes:
    return f'#!/bin/sh\nexec {words} "$@"\n'.encode()


def _pack_once(name: str, runner: Runner, programs: Sequence[str]) -> tuple[bytes, bytes]:
    tar = make_once(f"site-{name}.tar", lambda path: path.write_bytes(_pack(runner, programs))).read_bytes()
    return tar, make_once(f"site-{name}.tgz", lambda path: path.write_bytes(build.compress(tar))).read_bytes()


def _pack(runner: Runner, programs: Sequence[str]) -> bytes:
    folder = runner.home / "site-image"
    runner.read("pull", "--sandbox", str(folder), "host:" + ",".join(map(require_program, programs)))
    for pattern in ("test", "lib2to3", "pydoc_data", "idlelib", "ensurepip", "config-*", "tkinter"):
        for path in folder.glob(f"usr/lib/python3.*/{pattern}"):
            shutil.rmtree(path)
    add_libraries(folder)
    if (folder / "usr/bin/python3").exists():
        (folder / "usr/bin/python").symlink_to("python3")
    shutil.rmtree(folder / ".singularity.d")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, ".", filter=_give_to_root)
    shutil.rmtree(folder)
    return buffer.getvalue()


def _give_to_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
