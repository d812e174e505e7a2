# SPDX-License-Identifier: BSD-3-Clause
"""Machines with a GPU driver as real trees of files, with a libnvidia-ml in them that answers as a test wants."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.builders.gpu_hosts import ARM, X86, make_driver_tree
from tests.requirements import REPOSITORY, require_program

SOURCE = REPOSITORY / "tests/gpu/fake_nvml.c"
FOLDER = f"/usr/lib/{os.uname().machine}-linux-gnu"


@functools.cache
def build_nvml() -> Path:
    """The library that FAKE_NVML_* variables rule; built once."""
    folder = Path(tempfile.mkdtemp(prefix="kedge-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "libnvidia-ml.so"
    command = [require_program("gcc"), "-std=gnu11", "-shared", "-fPIC", "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return target


def write_machine(
    root: Path, tree: dict[str, bytes | str | None] | None = None, *, has_nvml: bool = True, version: str = "580.95.05"
) -> Path:
    """The tree as files below `root`; without one, a machine with an H200."""
    tree = make_gpu_tree(version) if tree is None else tree
    for path, content in tree.items():
        place = root / path.lstrip("/")
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("-> "):
            place.symlink_to(content[3:])
        else:
            place.write_bytes(content.encode() if isinstance(content, str) else content)
    library = root / FOLDER.lstrip("/") / f"libnvidia-ml.so.{version}"
    if has_nvml and library.exists():
        shutil.copy(build_nvml(), library)
    return root


def make_gpu_tree(version: str = "580.95.05", **choices: object) -> dict[str, bytes | str | None]:
    """A driver's tree for the kind of machine that the tests run on."""
    flags = ARM if os.uname().machine == "aarch64" else X86
    return make_driver_tree(version, folder=FOLDER, flags=flags, **choices)  # type: ignore[arg-type]
